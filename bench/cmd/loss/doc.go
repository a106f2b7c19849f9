// Command loss kills a server in the middle of its work, as a crash would, and counts what it had acknowledged and Redis does
// not have.
package main
