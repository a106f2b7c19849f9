// Package decisionlog writes the decisions of acquires as lines of JSON to a file or a stream, for
// audit and analytics, without ever blocking the requests that make them.
//
// A [Log] samples verdicts of each kind at random, and copies their lines to a queue of bounded
// size, see package outbox. If the queue is full because the disk or the reader is slow, or if a
// write fails because the disk is full, lines are dropped and counted. So the lines are no ledger;
// the counts are.
//
// A file is opened to append, and opened again by its name on [Log.Reopen], after a rename. It
// contains whole lines: where a failure cut a line off, the next one begins on a new line. A line
// reaches the file within about a tenth of a second.
//
// A [Log] is safe for concurrent use.
package decisionlog
