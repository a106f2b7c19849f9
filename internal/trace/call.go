package trace

import (
	"encoding/json"
	"time"
)

// Call is work done by a node for another one as part of a trace.
type Call struct {
	// Context holds the span of the asking node.
	Context *Context
	// Peer is the name of the asking process, and Asked the kind of work.
	Peer, Asked string
	// Operations is the number of operations sent.
	Operations int
	// Began is the start of the work, and Took its duration.
	Began time.Time
	Took  time.Duration
	// Err is the first error, nil if there was none.
	Err error
}

// line is a call in an access log.
type line struct {
	Time       string  `json:"time"`
	Peer       string  `json:"peer"`
	Asked      string  `json:"asked"`
	Operations int     `json:"operations"`
	DurationMS float64 `json:"duration_ms"`
	Error      string  `json:"error,omitempty"`
	TraceID    string  `json:"trace_id"`
}

// Line returns the call as a JSON object for an access log.
func (c *Call) Line() []byte {
	l := line{Time: c.Began.UTC().Format("2006-01-02T15:04:05.000Z"), Peer: c.Peer,
		Asked: c.Asked, Operations: c.Operations, TraceID: c.Context.TraceID(),
		DurationMS: float64(max(0, c.Took).Microseconds()) / 1000}
	if c.Err != nil {
		l.Error = c.Err.Error()
	}
	b, _ := json.Marshal(&l) // such an object always marshals
	return b
}
