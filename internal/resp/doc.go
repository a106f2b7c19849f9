// Package resp serves a twotier node to Redis clients: it speaks the Redis serialization protocol,
// RESP2 and RESP3, inline commands included.
//
// A [Server] reads commands, hands the operations among them to a [Service], and answers in order.
// Commands TT.ACQUIRE, TT.ADD, TT.COUNT and CL.THROTTLE that arrive together are executed as one
// batch. Any other command waits until the commands before it are executed, so a client that sends
// several commands at once sees their effects in the order it sent them. Names, bounds and error
// meanings are the same as for every listener, see package request. docs/doors.md lists the
// commands, with their arguments and answers, and the errors.
//
// The server promises:
//
//   - A command has at most 64 KiB and 4096 arguments. Larger commands and input other than RESP
//     end the connection with an error that names the reason; the commands before it are executed
//     and answered.
//   - A command is read completely before it is executed. A malformed command counts nothing.
//   - Connections, and the memory for reading, executing and answering, are bounded, in total and
//     for each address. A connection between two commands holds a small buffer. A deep pipeline is
//     read and executed in larger parts while there is memory for that, and in smaller parts
//     otherwise. The next part is not read before the last one is answered, so a client that does
//     not read its answers is no longer served, and is cut off after Options.WriteTimeout.
//   - Commands between MULTI and EXEC are checked, queued, and executed by EXEC as one pipeline. A
//     transaction is bounded like the part of a pipeline that is executed at once, and all of them
//     share an account of memory, so that open transactions leave room for plain commands.
//   - A panic ends only the connection it happened on.
//   - [Server.Close] lets the commands already read finish. Answered commands were counted; the
//     outcome of a command without an answer is unknown to the client, as always with Redis.
//
// With Options.Tokens a connection must authenticate, with AUTH or HELLO, before anything else. Its
// token is looked up again for each later read, so a withdrawn token stops working.
//
// The package does not use tidwall/redcon, which would do most of this: redcon lets the buffer for
// a command grow to any length the client states, has no write deadline, so that a client that does
// not read holds memory for ever, and copies every command to the heap.
package resp
