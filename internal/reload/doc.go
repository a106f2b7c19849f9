// Package reload reads files again when they change: tokens, certificates, secrets.
//
// A [Loader] looks at the contents themselves, twice a second: they are small, and neither a
// modification time that stands still nor a directory that was swapped beneath a link, as
// Kubernetes does it, hides a change. A change is taken once two looks in a row have found it, so
// that a file which is written in place is not read in the middle of that; [Loader.Reload] takes it
// at once. A pipe is read once, at start. What can't be used is logged, once, and what was in force
// stays so.
//
// Methods of a Loader may be called from several goroutines; Add only before Open.
package reload
