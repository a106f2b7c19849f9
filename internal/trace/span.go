package trace

import (
	"log/slog"
	"time"
)

// Tracer records spans: what this node did as a part of traces.
type Tracer interface {
	// Start begins a span of a trace, which serves what asked for it in the span parent, and
	// returns it with its ID. The state is that of the parent. It does not wait.
	Start(trace [16]byte, parent [8]byte, state, name string, began time.Time) (Span, [8]byte)
}

// Span is a span that is being recorded. Its methods may be called concurrently, and don't wait.
// It is an alias, so that package httpapi can have an equal one that its users can name.
type Span = interface {
	// Set adds attributes. They must not have keys of counters, which may be personal data.
	Set(attributes ...slog.Attr)
	// Fail says that what the span is about went wrong for a reason of this side.
	Fail(why string)
	// End ends it. What is called later does nothing.
	End()
}

// Begin begins a span that serves what asked for it in parent, if somebody keeps such spans: if t
// is not nil and the span that asks is kept as well. Otherwise it returns parent. So who asks
// decides which requests have spans.
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

// Verdict is the attribute that says what a request came to: the worst verdict in it.
func Verdict(text string) slog.Attr { return slog.String("twotier.verdict", text) }

// Namespace is the attribute with the namespace of what a request asks for, the first one if there
// are several.
func Namespace(name string) slog.Attr { return slog.String("twotier.namespace", name) }

// Operations is the attribute with the number of operations of a request.
func Operations(n int) slog.Attr { return slog.Int("twotier.operations", n) }
