// Package httpapi is the outside of a twotier node: HTTP/1.1, JSON, metrics, the OpenAPI document
// and the dashboard.
//
// A [Server] answers what the node behind it, a [Service], knows. It reads a request in one pass,
// in place, hands the node operations whose keys are views into the request, and appends the answer
// to the response; for a key that exists that path allocates nothing. What is wrong with a request
// is said with the field and what would be right, as application/problem+json (RFC 9457). Requests
// are read whole before anything of them is executed, so a malformed one counts nothing.
//
// What it promises:
//
//   - Bodies, headers, connections and the time of every step are bounded; a slow, half-sent or
//     garbled request costs its own connection only.
//   - Memory is taken for what is large before it is read, done or answered, and given back when
//     the answer is written: a request waits for it, or is answered 503 and nothing is done. One
//     address may have a part of it only, and of the connections.
//   - A panic in a handler becomes a 500 and one log line. It never ends the process.
//   - A write whose outcome is not known is answered 503 with "outcome":"unknown". Every other
//     error counted nothing.
//   - [Server.Close] lets requests that have begun finish, and when it returns none of the server's
//     goroutines run.
//
// The metrics are those of Prometheus's library, which reads our counters when it is asked: a
// request pays nothing for them. They say in their HELP lines what they are. Those that tell
// whether a cluster is well: twotier_member_states and twotier_peer_up (who does not answer),
// twotier_partition_states (hand-overs under way; own is all there is in peace),
// twotier_handovers_total by direction, and whether the state came from the other node or by way of
// the store, twotier_forwarded_total, twotier_ops_total with the source fallback,
// twotier_peer_failures_total, and twotier_ring_changes_total.
//
// # Sessions
//
// A client that lost the answer to a batch may send it again if it had told who it was. The header
// Twotier-Session names a session, 16 to 64 letters, digits and hyphens that nobody else would
// choose, in which there is one request at a time. Twotier-Sequence numbers its requests: the first
// has 1, each new one a higher number, and one that is sent again the number it had. The server
// keeps the last answer of each session. It carries a number out once and gives a repetition the
// same answer.
//
// Every answer names the process in Twotier-Process. A client that sends this name along is refused
// (421, "misdirected") by any other process that may have taken the address over, which could not
// know what the first one did. A number from before the last, or one other than 1 of a session that
// is not known (or no more: there is room for 8192, for a fifth of Options.MaxMemory, 32 MiB at the
// most, and for ten minutes), is refused as well (409, "sequence"), and so is another token than
// that which was presented last, and this one if it grants less now. Both refusals do nothing: who
// gets one for a first attempt knows that nothing happened, who gets one for a repetition will
// never know. The names of sessions are remembered for longer than the sessions, ten minutes at the
// least, and the first request of one that was forgotten is refused like any other (and so is one
// in some hundreds of those that are new: another name will do). At most 600,000 sessions begin in
// ten minutes; further ones are refused with 429.
//
// Methods of a Server may be called from several goroutines; Open may be called once.
//
// # Who may do what
//
// With [Options.Tokens] a request presents a bearer token. Each route takes one of its roles, as
// /openapi.json says, and each operation needs its namespace. The page, the document, /healthz and
// /readyz are for everyone; /metrics takes the role read, which Prometheus presents with
// authorization.credentials_file. 401 says that the token is not known, 403 that it does not grant
// the call; nothing was done then.
//
// A path is served as it is spelled in the document, and in no other way. A request that says twice
// how long it is is refused.
//
// JSON is read and written by hand because it is most of the work of a request: the fastest library
// takes half as long again to read it, encoding/json eight times (BenchmarkParseBatch).
//
// What it does not do: HTTP/2, compression. A proxy in front does.
package httpapi
