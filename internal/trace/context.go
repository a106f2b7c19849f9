package trace

import (
	"context"
	"encoding/hex"
	"log/slog"
	"time"
)

// Context is the trace context of a request.
type Context struct {
	// ID is the ID of the trace, Span the ID of the asking span. Neither is all zeros.
	ID   [16]byte
	Span [8]byte
	// Flags are the flags of the header, of which only Sampled is interpreted.
	Flags byte
	// State is the header tracestate, which tracing systems pass on to each other.
	State string
	// Recording is the span, if this node records it. It is not sent to other nodes.
	Recording Span
}

// Sampled is the flag of a request whose span is kept by its sender.
const Sampled = 0x01

// MaxState bounds the state, in bytes: longer ones need not be passed on.
const MaxState = 512

// Positions in a traceparent: VERSION-TRACEID-PARENTID-FLAGS, in lower-case hexadecimal digits.
const (
	idStart   = 3
	idEnd     = idStart + 32
	spanStart = idEnd + 1
	spanEnd   = spanStart + 16
	length    = spanEnd + 3
)

// Parse returns the context in the headers traceparent and tracestate of a request. It returns nil
// without a traceparent, or with one that the specification requires receivers to ignore. It drops
// a state that is too long.
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

// isHex reports whether text consists of lower-case hexadecimal digits.
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

// Sampled reports whether the asking span is kept.
func (c *Context) Sampled() bool { return c.Flags&Sampled != 0 }

// TraceID returns the ID of the trace in hexadecimal digits, or "" if c is nil.
func (c *Context) TraceID() string {
	if c == nil {
		return ""
	}
	return hex.EncodeToString(c.ID[:])
}

// TraceContext returns c, which is a [Source].
func (c *Context) TraceContext() *Context { return c }

// Source is a request or message that may be part of a trace.
type Source interface {
	// TraceContext returns the context, or nil if it is part of none.
	TraceContext() *Context
}

// Key is the key of a Context in a context.Context. The value is a *Context, possibly nil.
type Key struct{}

// With returns a context that is part of a trace. A nil c adds nothing.
func With(ctx context.Context, c *Context) context.Context {
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, Key{}, c)
}

// From returns the trace context in ctx, or nil if ctx is part of no trace.
func From(ctx context.Context) *Context {
	c, _ := ctx.Value(Key{}).(*Context)
	return c
}

// Tracer records spans: this node's work as part of traces.
type Tracer interface {
	// Start begins a span of a trace as a child of the span parent, and returns it with its ID.
	// state is the parent's. Start does not block.
	Start(trace [16]byte, parent [8]byte, state, name string, began time.Time) (Span, [8]byte)
}

// Span is a span that is being recorded. Its methods may be called concurrently, and don't block.
type Span interface {
	// Set adds attributes. They must not contain keys of counters, which may be personal data.
	Set(attributes ...slog.Attr)
	// Fail marks the work of the span as failed for a reason on this side.
	Fail(why string)
	// End ends the span. Later calls do nothing.
	End()
}

// Begin begins a child span of parent if t is not nil and the asking span is kept. Otherwise it
// returns parent. So the sender decides which requests have spans.
func Begin(t Tracer, parent *Context, name string, began time.Time) *Context {
	if t == nil || parent == nil || !parent.Sampled() {
		return parent
	}
	span, id := t.Start(parent.ID, parent.Span, parent.State, name, began)
	return &Context{ID: parent.ID, Span: id, Flags: parent.Flags, State: parent.State,
		Recording: span}
}

// Recorded returns the span of c if this node records it, and nil otherwise.
func (c *Context) Recorded() Span {
	if c == nil {
		return nil
	}
	return c.Recording
}

// VerdictAttr returns the attribute with the verdict of a request: the worst one in it.
func VerdictAttr(text string) slog.Attr { return slog.String("twotier.verdict", text) }

// NamespaceAttr returns the attribute with the namespace of a request, the first one if there are
// several.
func NamespaceAttr(name string) slog.Attr { return slog.String("twotier.namespace", name) }

// OperationsAttr returns the attribute with the number of operations of a request.
func OperationsAttr(n int) slog.Attr { return slog.Int("twotier.operations", n) }
