// Package trace carries the context of a trace, as defined by W3C Trace Context, from a request to
// all work done for it, on this node and on others.
//
// A [Context] identifies the trace of a request and the asking span. It comes from the headers of a
// request ([Parse]), and is passed on in a context.Context ([With], [From]). A [Tracer] gives each
// span that it records a separate Context ([Begin]); without a tracer, or if the asking span is not
// kept, the incoming Context is passed on unchanged.
//
// Requests without a trace cost nothing: a [Source] looks for the headers only when asked, and work
// in memory does not ask.
//
// See https://www.w3.org/TR/trace-context/. A Context does not change once it is passed on, so it
// may be used concurrently.
package trace
