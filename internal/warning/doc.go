// Package warning defines warnings about settings, rules and requests that are accepted but
// probably don't mean what their author intended, and collects the warnings of one node.
//
// A [Warning] has a code from a fixed list, each with a section in docs/warnings.md. Package lint
// finds the warnings about settings and rules before anything runs; the listeners report the others
// to a [Log] when a request triggers them.
//
// A Log is safe for concurrent use. It holds a bounded number of warnings, whatever clients send.
package warning
