// Package linelog writes lines of text, such as JSON, to a file or a stream without ever blocking
// the callers that add them.
//
// A line is copied to a queue of bounded size, see package outbox. If the queue is full because the
// disk or the reader is slow, or if a write fails because the disk is full, lines are dropped and
// counted.
//
// A file is opened to append, and opened again by its name on [Log.Reopen], after a rename. It
// contains whole lines: where a failure cut a line off, the next one begins on a new line. A line
// reaches the file within about a tenth of a second.
//
// A [Log] is safe for concurrent use.
package linelog
