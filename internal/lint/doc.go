// Package lint finds settings and rules that are valid, but probably do something else than their
// author intended: see package warning and docs/warnings.md.
//
// Its functions are pure: they judge a parsed document and parsed settings, and ask nothing. What
// only requests can show, such as a proxy that is not trusted, the listeners report.
package lint
