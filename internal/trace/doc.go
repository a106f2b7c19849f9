// Package trace reads the ID of the trace that a request is part of, for decisions and log lines,
// as defined by W3C Trace Context: https://www.w3.org/TR/trace-context/.
//
// Requests without a trace cost nothing: a [Source] looks for the header only when asked, and work
// in memory does not ask.
package trace
