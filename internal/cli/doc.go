// Package cli is the command line of twotier: the commands that talk to a running server over HTTP
// (such as add, count, top and cluster), and the parts that all commands share, such as the layout
// of help and the wording of errors. It uses cobra.
//
// A command writes its answer to the given standard output, formatted for people or, with --json,
// exactly as the server sent it. It returns errors rather than printing them. The result of a
// command is nil; [ErrRefused] if limits refused; a [UsageError]; or any other error, for a
// failure. Commands share no state and read neither the environment nor the arguments of the
// process, so any number of them may run at once.
package cli
