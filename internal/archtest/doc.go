// Package archtest checks rules of the whole tree with tests: which package may import which, that
// every package is documented, that public APIs mention no internal types, how long files and
// functions may be, and that no package-level variable changes.
//
// Most rules read the source without building it. They apply to this module without its tests and
// without bench, which is a separate module. If a rule is in the way, change it here and document
// the reason, rather than working around it.
package archtest
