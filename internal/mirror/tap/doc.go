// Package tap passes the connections of an application on to its Redis, and reads along: the
// verdicts of a limiter in Redis, a script or a command such as CL.THROTTLE, become verdicts to
// compare. The application changes nothing but the address of Redis.
//
// A [Tap] forwards bytes unchanged in both directions, and parses copies of them. It counts
// commands and replies, so it finds the reply of each call in pipelines, in transactions (the reply
// of EXEC) and among the pushes of RESP3. A connection whose replies can't be counted is forwarded
// without reading from there on: after SUBSCRIBE and its relatives, MONITOR, SYNC, CLIENT REPLY,
// inline commands, and anything that is not RESP. Errors of the old Redis are no verdicts.
//
// A [Mapping] declares which calls are verdicts, and where their key, limit and answer are. [Read]
// reads mappings from YAML.
//
// Memory is bounded for each connection: texts above 64 KiB, and the rest of a command or
// a reply beyond 256 KiB, are forwarded but not kept. A verdict that needs them is not compared.
package tap
