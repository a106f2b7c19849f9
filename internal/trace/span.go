package trace

import (
	"log/slog"
	"time"
)

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
