package imports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// Mark names the counter of the events that a source has contributed to a key.
type Mark struct{ NS, Key, Source string }

// Op counts N events of a key and of its mark at a time, if the mark then has at most Max events.
type Op struct {
	Mark
	TS, N, Max int64

	from string // the key in Redis
}

// Probe asks for the number of events of a mark in any window that contains a time.
type Probe struct {
	Mark
	TS int64
}

// Bucket is a stretch of time and the number of events in it.
type Bucket struct{ Start, Width, N int64 }

// Server counts events. All times are unix milliseconds.
type Server interface {
	// Span returns how far back a namespace reaches, in milliseconds.
	Span(ctx context.Context, ns string) (int64, error)
	// Marked answers probes, in order.
	Marked(ctx context.Context, span int64, probes []Probe) ([]int64, error)
	// Series returns the buckets of a mark over a window that ends now.
	Series(ctx context.Context, m Mark, window int64) ([]Bucket, error)
	// Count executes operations in order, and calls counted with each one that has counted. It
	// reports whether all of them have, and if not, why the first that failed has, which may be
	// nil.
	Count(ctx context.Context, span int64, ops iter.Seq[Op], counted func(*Op)) (all bool, why,
		err error)
}

// Options describe an import.
type Options struct {
	// Namespace is the namespace that counts the events. Default: default.
	Namespace string
	// Key is the key that counts them, with placeholders of the source's pattern.
	Key *Pattern
	// Source distinguishes sources with equal names of keys. Default: none.
	Source string
	// Until leaves out later events, in unix milliseconds; 0 imports all.
	Until int64
	// DryRun counts nothing.
	DryRun bool
	// Progress receives the report now and then, and how many keys of all kinds Redis has looked
	// at. Default: none.
	Progress func(r *Report, seen int64)
}

// Report sums up an import. The numbers are of events unless they are named otherwise.
type Report struct {
	Keys   int64 `json:"keys"`
	Events int64 `json:"events"`
	// Counted are counted by this import, or would be without DryRun. Repeated were counted before
	// it, and Meanwhile during it: by another import, or by a request of this one whose answer got
	// lost.
	Counted   int64 `json:"counted"`
	Repeated  int64 `json:"repeated"`
	Meanwhile int64 `json:"meanwhile"`
	// Held count from now on, because their key outlives the window that it is for.
	Held int64 `json:"-"`
	// TooOld are older than the namespace reaches back, Later are after Until, and Ahead are ahead
	// of the server's clock.
	TooOld int64 `json:"too_old"`
	Later  int64 `json:"later"`
	Ahead  int64 `json:"ahead"`
	// Oldest and Newest are the first and the last time among those Counted, in unix milliseconds,
	// and 0 without any.
	Oldest int64 `json:"oldest,omitempty"`
	Newest int64 `json:"newest,omitempty"`
	// Unreadable is the number of elements that are no events, and Example describes one.
	Unreadable int64  `json:"unreadable"`
	Example    string `json:"-"`
	// TimeKeys is the number of keys that hold a time and no events, and TimeKey is one of them.
	TimeKeys int64  `json:"-"`
	TimeKey  string `json:"-"`
	// FailedKeys is the number of keys that can't be imported, and Failed has the first of them.
	FailedKeys int64      `json:"failed_keys"`
	Failed     []KeyError `json:"failed,omitempty"`
	// SpanMS is how far back the namespace reaches, in milliseconds.
	SpanMS int64 `json:"span_ms"`
	// Formats are the formats of the keys.
	Formats map[Format]int64 `json:"formats"`
	// First is the first key with events to count, nil if there is none.
	First *Sample `json:"first,omitempty"`
}

// Sample shows what becomes of a key: From is its name in Redis, Key that in twotier, and Events
// are counted.
type Sample struct {
	From   string `json:"from"`
	Key    string `json:"key"`
	Events int64  `json:"events"`
}

// KeyError is why a key of the source can't be imported.
type KeyError struct {
	Key   string `json:"key"`
	Error string `json:"error"`
}

// mostFailed is how many failed keys a report lists.
const mostFailed = 10

// ErrBusy is returned if the marks of some keys change all the time.
var ErrBusy = errors.New("another import counts the same keys; repeat this one when it has ended")

// Import moves events from a source to a server.
type Import struct {
	source *Source
	server Server
	opt    Options
	span   int64
	now    int64
	report Report
	seen   int64
}

// New returns an import that has not begun.
func New(source *Source, server Server, opt Options) *Import {
	return &Import{source: source, server: server, opt: opt,
		report: Report{Formats: map[Format]int64{}}}
}

// Run imports everything. After an error, the report covers the events counted before it.
func (m *Import) Run(ctx context.Context) (*Report, error) {
	span, err := m.server.Span(ctx, m.opt.Namespace)
	if err != nil {
		return &m.report, err
	}
	m.span, m.report.SpanMS = span, span
	err = m.source.Each(ctx, func(list []Content, seen int64) error {
		m.seen += seen
		return m.importKeys(ctx, list)
	})
	m.progress()
	return &m.report, err
}

func (m *Import) progress() {
	if m.opt.Progress != nil {
		m.opt.Progress(&m.report, m.seen)
	}
}

// chunk bounds the operations that are planned at a time.
const chunk = 20_000

// importKeys imports some keys, a part of them at a time.
func (m *Import) importKeys(ctx context.Context, list []Content) error {
	var part []keyPlan
	n := 0
	for i := range list {
		k, ok := m.prepare(&list[i])
		if !ok {
			continue
		}
		part = append(part, k)
		if n += len(k.events); n >= chunk {
			if err := m.importPart(ctx, part); err != nil {
				return err
			}
			part, n = nil, 0
		}
	}
	return m.importPart(ctx, part)
}

type keyPlan struct {
	Mark
	from    string  // the key in Redis
	events  []Event // those that can be counted
	missing []Event // those of them that the mark lacks
	marked  int64   // the events of the mark
	isTotal bool    // see Content
	since   int64
}

// prepare adds a key to the report, and returns its plan if it has events to count.
func (m *Import) prepare(c *Content) (k keyPlan, ok bool) {
	if c.Format == "" && c.Err == nil {
		return k, false // it has expired
	}
	r := &m.report
	if c.IsTime {
		r.TimeKeys++
		r.TimeKey = cmp.Or(r.TimeKey, c.Key)
		return k, false
	}
	r.Keys++
	if c.Format != "" {
		r.Formats[c.Format]++
	}
	r.Unreadable += c.Unreadable
	if r.Example == "" && c.Example != "" {
		r.Example = fmt.Sprintf("%q: %s", c.Key, c.Example)
	}
	k.from, k.isTotal, k.since = c.Key, c.IsTotal, c.Since
	k.Mark = Mark{NS: m.opt.Namespace, Key: m.opt.Key.expand(c.Values),
		Source: sourceName(m.opt.Source, cmp.Or(c.Origin, c.Key))}
	if err := checkKey(c, k.Key); err != nil {
		if r.FailedKeys++; len(r.Failed) < mostFailed {
			r.Failed = append(r.Failed, KeyError{c.Key, err.Error()})
		}
		return k, false
	}
	r.Held += c.Held
	m.now = time.Now().UnixMilli()
	for _, e := range c.Events {
		m.classify(e, &k)
	}
	return k, len(k.events) > 0
}

// classify adds an event to the report, and to the plan if it can be counted.
func (m *Import) classify(e Event, k *keyPlan) {
	r := &m.report
	r.Events += e.N
	switch {
	case e.TS <= m.now-m.span+edge.Milliseconds():
		r.TooOld += e.N
	case m.opt.Until > 0 && e.TS > m.opt.Until:
		r.Later += e.N
	case e.TS > m.now+ahead.Milliseconds():
		r.Ahead += e.N
	default:
		k.events = append(k.events, e)
	}
}

const (
	// edge is how long an event must stay within the reach of its namespace to be imported.
	edge = 10 * time.Second
	// ahead is how far an event may be ahead of this machine's clock. The server accepts two
	// seconds.
	ahead = time.Second
)

// longestKey is the length of the longest key that can have a mark, in bytes.
const longestKey = request.MaxKeyBytes - nameSize - 1

// checkKey returns why a key can't be imported, or nil.
func checkKey(c *Content, key string) error {
	switch {
	case c.Err != nil:
		return c.Err
	case len(key) > longestKey:
		return fmt.Errorf("its key in twotier would have %d bytes, want at most %d; shorten it "+
			"with --as", len(key), longestKey)
	case !request.ValidKey([]byte(key)):
		return fmt.Errorf("its key in twotier would be %q; %s; see --as", key, request.WantKey)
	}
	return nil
}

// nameSize is the length of the name of a source.
const nameSize = 8

// sourceName returns the name of the source of a mark: it must tell the sources of one key apart.
func sourceName(of, key string) string {
	sum := sha256.Sum256([]byte(of + "\x00" + key))
	return base64.RawURLEncoding.EncodeToString(sum[:nameSize*6/8])
}

// attempts is how often the missing events of a key are found anew.
const attempts = 6

// importPart counts the missing events of some keys.
func (m *Import) importPart(ctx context.Context, part []keyPlan) error {
	if len(part) == 0 {
		return nil
	}
	var why error
	planned, before := int64(0), m.report.Counted
	for attempt := range attempts {
		if err := m.findMissing(ctx, part); err != nil {
			return err
		}
		for i := 0; attempt == 0 && i < len(part); i++ {
			lacking := total(part[i].missing)
			m.report.Repeated += total(part[i].events) - lacking
			planned += lacking
		}
		all, reason, err := m.count(ctx, part)
		if err != nil {
			return err
		}
		if all {
			m.report.Meanwhile += planned - (m.report.Counted - before)
			m.progress()
			return nil
		}
		why = reason
	}
	if why != nil {
		return why
	}
	return ErrBusy
}

// count counts the missing events of some keys, or only reports them in a dry run.
func (m *Import) count(ctx context.Context, part []keyPlan) (all bool, why, err error) {
	if !m.opt.DryRun {
		return m.server.Count(ctx, m.span, operations(part), m.addCounted)
	}
	for op := range operations(part) {
		m.addCounted(&op)
	}
	return true, nil, nil
}

// addCounted adds to the report an operation that has counted.
func (m *Import) addCounted(op *Op) {
	r := &m.report
	r.Counted += op.N
	switch {
	case r.First == nil:
		r.First = &Sample{From: op.from, Key: op.Key, Events: op.N}
	case r.First.From == op.from:
		r.First.Events += op.N
	}
	if r.Oldest == 0 || op.TS < r.Oldest {
		r.Oldest = op.TS
	}
	r.Newest = max(r.Newest, op.TS)
}

// operations returns the operations that count the missing events, in order of time for each key.
func operations(part []keyPlan) iter.Seq[Op] {
	return func(yield func(Op) bool) {
		for i := range part {
			k := &part[i]
			most := k.marked
			for _, e := range k.missing {
				for left := e.N; left > 0; left -= request.MaxN {
					n := min(left, request.MaxN)
					most = min(most+n, twotier.MaxBound)
					if !yield(Op{Mark: k.Mark, TS: e.TS, N: n, Max: most, from: k.from}) {
						return
					}
				}
			}
		}
	}
}
