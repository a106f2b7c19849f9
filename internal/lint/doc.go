// Package lint finds settings and rules that are valid, but probably behave differently than their
// author intended: see package warning and docs/warnings.md.
//
// Its functions are pure: they judge a parsed document and parsed settings, and ask nothing.
// Problems that only requests reveal, such as a proxy that is not trusted, are reported by the
// listeners.
package lint
