// Package archtest holds the rules of the whole tree as tests: who may import whom, that every
// package says what it is, how long files and functions may be, and that nothing at package level
// changes.
//
// The rules read the source and don't build it. They apply to this module without its tests; bench
// is a module of its own. A rule that is in the way is changed here, with the reason, and not
// worked around.
package archtest
