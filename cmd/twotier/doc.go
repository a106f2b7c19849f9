// Command twotier counts events in sliding windows: twotier serve is the server, the other commands
// talk to one.
//
// It exits with status 0 on success (for serve: it was stopped and has flushed everything), 1 on
// failure, with the reason on stderr, 2 for wrong usage, and 3 if acquire or distinct was refused.
// The first SIGINT or SIGTERM ends a command cleanly, the second at once.
package main
