package trace

import (
	"context"
	"encoding/hex"
)

// Context is what a request says about the trace that it is part of.
type Context struct {
	// ID is the ID of the trace, Span that of the span which asks. Neither is all zeros.
	ID   [16]byte
	Span [8]byte
	// Flags are those of the header, of which Sampled is known.
	Flags byte
	// State is the header tracestate: what systems that keep spans pass on to each other.
	State string
	// Recording is the span, if this node records it. It does not go to other nodes.
	Recording Span
}

// Sampled is the flag which says that whoever asks keeps its span.
const Sampled = 0x01

// MaxState bounds the state, in bytes: more need not be passed on.
const MaxState = 512

// The places of a traceparent: VERSION-TRACEID-PARENTID-FLAGS, in lower-case hexadecimal digits.
const (
	idStart   = 3
	idEnd     = idStart + 32
	spanStart = idEnd + 1
	spanEnd   = spanStart + 16
	length    = spanEnd + 3
)

// Parse returns what the headers traceparent and tracestate of a request say. It returns nil if
// there is no traceparent, or one which the specification has receivers ignore. A state that is too
// long is left out.
func Parse(parent, state string) *Context {
	switch {
	case len(parent) < length, parent[2] != '-', parent[idEnd] != '-', parent[spanEnd] != '-':
		return nil
	case parent[:2] == "ff", !isHex(parent[:2]), !isHex(parent[spanEnd+1 : length]):
		return nil
	case len(parent) > length && (parent[:2] == "00" || parent[length] != '-'):
		return nil // only later versions may have more
	case !isHex(parent[idStart:idEnd]), !isHex(parent[spanStart:spanEnd]):
		return nil
	}
	c := new(Context)
	var flags [1]byte
	_, _ = hex.Decode(c.ID[:], []byte(parent[idStart:idEnd])) // these are digits
	_, _ = hex.Decode(c.Span[:], []byte(parent[spanStart:spanEnd]))
	_, _ = hex.Decode(flags[:], []byte(parent[spanEnd+1:length]))
	if c.Flags = flags[0]; !c.Valid() {
		return nil
	}
	if len(state) <= MaxState {
		c.State = state
	}
	return c
}

// isHex reports whether text is of lower-case hexadecimal digits.
func isHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Valid reports whether c names a trace and a span: neither ID is all zeros.
func (c *Context) Valid() bool { return c.ID != [16]byte{} && c.Span != [8]byte{} }

// Sampled reports whether the span that asks is kept.
func (c *Context) Sampled() bool { return c.Flags&Sampled != 0 }

// TraceID returns the ID of the trace in hexadecimal digits, or nothing if c is nil.
func (c *Context) TraceID() string {
	if c == nil {
		return ""
	}
	return hex.EncodeToString(c.ID[:])
}

// TraceContext returns c, which is a [Source].
func (c *Context) TraceContext() *Context { return c }

// Source is something that may be part of a trace.
type Source interface {
	// TraceContext returns the context, or nil if it is part of none.
	TraceContext() *Context
}

// Key is the key of a Context in a context.Context, whose value is a *Context, perhaps nil.
type Key struct{}

// With returns a context that is part of a trace. A nil c adds nothing.
func With(ctx context.Context, c *Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, Key{}, c)
}

// From returns what ctx is part of, or nil if it is part of no trace.
func From(ctx context.Context) *Context {
	c, _ := ctx.Value(Key{}).(*Context)
	return c
}
