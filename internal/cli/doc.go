// Package cli is the command line of twotier: the commands that talk to a running server over HTTP
// (add, count, acquire, series, top, cluster, mode, reset and bench), and what all commands share,
// such as how help looks and how mistakes are told. It is made with cobra.
//
// A command writes its answer to the standard output that it is given, for people or, with --json,
// exactly as the server sent it, and returns an error rather than printing it. What became of a
// command is one of: nil; [ErrRefused], an acquire that was not allowed; a [UsageError]; anything
// else failed. Commands share nothing and read neither the process's environment nor its arguments,
// so any number may run at once.
package cli
