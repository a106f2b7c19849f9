// Package linelog writes lines of text, such as JSON, to a file or a stream without ever making
// those wait who have something to write.
//
// A line is copied to a queue of bounded size, which one goroutine writes out. If the queue is full
// because the disk or the reader is slow, and if a write fails because the disk is full, lines are
// dropped and counted. The log has one line when writing fails, and one when it works again.
//
// A file is opened to append, and opened again by its name on [Log.Reopen], after it was renamed.
// What stands in it is whole lines: where a failure cut one off, the next one begins on a line of
// its own. A line is in the file within about a tenth of a second.
//
// A [Log] is safe for concurrent use.
package linelog
