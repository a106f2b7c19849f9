package trace

import (
	"encoding/json"
	"time"
)

// Call is something that a node did for another one as a part of a trace.
type Call struct {
	// Context has the span of the node that asked.
	Context *Context
	// Peer is the name of the process that asked, and Asked what for.
	Peer, Asked string
	// Operations is how many operations it sent.
	Operations int
	// Began is when it was begun, and Took how long it took.
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

// Line returns the call as an object of JSON for an access log.
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
