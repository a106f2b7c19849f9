// Command twotier counts events in sliding windows: twotier serve is the server, the other commands
// talk to one.
//
// Its exit status is 0 if all went well (for serve: it was told to stop and everything is flushed),
// 1 with a reason on the standard error otherwise, 2 for wrong usage, and 3 for an acquire that was
// refused. The first SIGINT or SIGTERM ends a command in an orderly way, the second at once.
package main
