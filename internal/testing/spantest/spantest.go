package spantest

import (
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"twotier.dev/twotier/internal/trace"
)

// Span is a recorded span.
type Span struct {
	Trace      [16]byte
	ID, Parent [8]byte
	State      string // the parent's
	Name       string
	Attributes map[string]string
	// Failed marks a failed span, and Ended counts how often it was ended.
	Failed bool
	Ended  int
}

// Recorder is a trace.Tracer that keeps all spans. The IDs of its spans are 1, 2, and so on. The
// zero value is ready to use.
type Recorder struct {
	mu    sync.Mutex
	spans []*Span
}

// Start implements trace.Tracer.
func (r *Recorder) Start(id [16]byte, parent [8]byte, state, name string,
	_ time.Time) (trace.Span, [8]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Span{Trace: id, Parent: parent, State: state, Name: name, Attributes: map[string]string{}}
	r.spans = append(r.spans, s)
	s.ID = ID(len(r.spans))
	return handle{r, s}, s.ID
}

// ID returns the ID of the n-th span.
func ID(n int) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

// Spans returns copies of all spans in the order in which they began.
func (r *Recorder) Spans() (all []Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		all = append(all, *s)
	}
	return all
}

// handle is a span that is being recorded.
type handle struct {
	r *Recorder
	s *Span
}

// Set implements trace.Span.
func (h handle) Set(attributes ...slog.Attr) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	for _, a := range attributes {
		h.s.Attributes[a.Key] = a.Value.String()
	}
}

// Fail implements trace.Span.
func (h handle) Fail(string) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.s.Failed = true
}

// End implements trace.Span.
func (h handle) End() {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.s.Ended++
}
