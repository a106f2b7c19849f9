// Command messages runs the message-control scenario: every message must hold to four rules at once, two of its receiver and two
// of its receiver and content; receivers are drawn evenly from ten million; messages come in an open loop. It searches for
// the highest rate at which the 99th percentile of the latency, from when a message was due, stays below 5 ms, and then
// holds a target rate for longer.
package main
