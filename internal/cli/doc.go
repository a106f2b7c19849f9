// Package cli is the commands of twotier that talk to a running server over HTTP: add, count, acquire, series, top, cluster,
// mode, reset and bench.
//
// A [Command] writes its answer to the standard output that it is given, for people or, with --json, exactly as the server
// sent it, and returns an error rather than printing it. What became of a command is one of: nil; [ErrRefused], an acquire
// that was not allowed; [flag.ErrHelp]; a [UsageError]; anything else failed. Commands share nothing and read neither the
// process's environment nor its arguments, so any number may run at once.
package cli
