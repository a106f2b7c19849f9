// Package trace carries the context of a trace, as W3C Trace Context has it, from a request to
// everything that is done because of it, on this node and on others.
//
// A [Context] says which trace a request is part of and which span asked for it. It is made of the
// headers of a request ([Parse]), and passed on in a context.Context ([With], [From]). A [Tracer]
// gives each span that it records a Context of its own ([Begin]); without one, or if the span that
// asks is not kept, the Context that came in is passed on as it is.
//
// Nothing is spent on requests that are part of no trace: a [Source] looks for the headers when
// something asks, and what is done in memory does not.
//
// See https://www.w3.org/TR/trace-context/. A Context does not change once it is passed on, so it
// may be used concurrently.
package trace
