// Package resp serves a twotier node to Redis clients: it speaks the Redis serialization protocol,
// RESP2 and RESP3, inline commands included.
//
// A [Server] reads commands, hands the operations among them to a [Service], and answers in order.
// The commands TT.ACQUIRE, TT.ADD, TT.COUNT and CL.THROTTLE that arrive together are executed as
// one batch; any other command first has what came before it executed, so a client that sends
// several commands at once sees their effects in the order in which it sent them. Names, bounds and
// the meaning of errors are those of every door, see package request. docs/doors.md has the
// commands, with their arguments and answers, and the table of errors.
//
// The server promises:
//
//   - A command has at most 64 KiB and 4096 arguments. What exceeds that, or is not RESP, ends its
//     connection, after an error that says why; what came before it is executed and answered.
//   - A command is read completely before it is executed. One that is malformed counts nothing.
//   - Connections, and the memory for reading, executing and answering, are bounded, in total and
//     for each address. A connection between two commands holds a small buffer. A deep pipeline is
//     read and executed in larger parts while there is memory for that, and in smaller parts
//     otherwise. The next part is not read before the last one is answered, so a client that does
//     not read its answers stops being served, and is cut off after Options.WriteTimeout.
//   - A panic ends the connection it happened on, and nothing else.
//   - [Server.Close] lets what has been read finish. What was answered was counted; of a command
//     without an answer a client can't know, as always with Redis.
//
// With Options.Tokens a connection must authenticate, with AUTH or HELLO, before anything else. Its
// token is looked up again with whatever it sends next, so one that is withdrawn stops working.
//
// It does not use tidwall/redcon, which would do most of this: redcon lets the buffer for a command
// grow to whatever lengths the client states, has no deadline for writing answers, so that a client
// that does not read keeps memory for ever, and copies every command to the heap.
package resp
