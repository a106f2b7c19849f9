// Package httpapi serves a twotier node over HTTP/1.1: the JSON API, metrics, the OpenAPI document
// and the status page.
//
// A [Server] answers requests with the help of a [Service]. It parses a request in one pass and in
// place, hands the Service operations whose keys are views into the request, and appends the answer
// to the response. For a key that exists this path allocates nothing. Errors name the wrong field
// and a right value, as application/problem+json (RFC 9457). A request is read completely before
// anything in it is executed, so a malformed request counts nothing.
//
// The server promises:
//
//   - Bodies, headers, connections and the duration of every step are bounded. A slow, half-sent or
//     garbled request costs only its own connection.
//   - Memory for a large body, its execution and its answer is reserved before it is used, and
//     returned once the answer is written. A request that can't get memory within half of
//     Options.RequestTimeout, or of its sender's patience (the header Twotier-Timeout, in
//     milliseconds), is answered 429 and nothing is done; one whose answer is longer than foreseen,
//     503 with an unknown outcome. One client address may only use a part of the memory and of the
//     connections.
//   - A panic in a handler becomes a 500 and one log line. It never ends the process.
//   - A write whose outcome is not known is answered 503 with "outcome":"unknown". With every other
//     error nothing was counted.
//   - [Server.Close] lets requests that have begun finish. When it returns, none of the server's
//     goroutines run.
//
// It does not do HTTP/2 or compression; a proxy in front can. JSON is parsed and written by hand
// because that is most of the work of a request: the fastest library takes half as long again to
// parse it, encoding/json eight times as long (BenchmarkParseBatch).
//
// Methods of a Server may be called from several goroutines; Open may be called once.
//
// # Metrics
//
// /metrics uses Prometheus's library, which reads existing counters when it is scraped, so requests
// pay nothing for it. The HELP lines explain each metric. These show whether a cluster is healthy:
//
//   - twotier_member_states and twotier_peer_up: which members do not answer
//   - twotier_partition_states: handovers in progress; all partitions are in state "own" when there
//     are none
//   - twotier_handovers_total by direction, and by whether the state came from the other node or
//     through the store
//   - twotier_forwarded_total, twotier_peer_failures_total, twotier_ring_changes_total, and
//     twotier_ops_total with the source fallback
//   - twotier_decisions_total: decisions about acquires and values, by namespace, rule, verdict and
//     door, and twotier_decision_seconds: their duration, by door. No series is of a key
//
// # Sessions
//
// A client that did not get the answer to a batch may send the batch again without counting twice
// if it used a session. The header Twotier-Session names the session with 16 to 64 letters, digits
// and hyphens that nobody else would choose; a session has one request at a time. Twotier-Sequence
// numbers its requests: 1 for the first, a higher number for each new one, and the same number for
// a repetition. The server keeps the last answer of each session. It executes a number once and
// answers a repetition with the stored answer.
//
// Every answer names the process in Twotier-Process. If the client sends that name along, any other
// process that may have taken over the address refuses the request (421, "misdirected"), because it
// can't know whether the first process executed the request.
//
// A request is also refused (409, "sequence") if its number is lower than the last one, or if it is
// not 1 and the session is unknown, or if it is a repetition and the stored answer was dropped.
// Sessions are forgotten after ten minutes, and there is room for 8192 of them. Their answers take
// up to a fifth of Options.MaxMemory, or 32 MiB if that is less; the ones not used for longest are
// dropped first. A session belongs to its token: a request with another token than the one used
// last is refused in the same way, and so is one whose token grants less than it did.
//
// Nothing is done when a request is refused. If it was a first attempt, nothing happened at all; if
// it was a repetition, the outcome of the first attempt will never be known.
//
// The names of sessions are remembered longer than the sessions themselves, for at least ten
// minutes, and the first request of a forgotten session is refused like any other. The memory is
// probabilistic: one new name in several hundred is refused as well, and the client then picks
// another. At most 600,000 sessions can begin within ten minutes; more are refused with 429.
//
// # Access
//
// With [Options.Tokens], requests present a bearer token. Each route requires one of the roles
// listed in /openapi.json, and each operation requires its namespace. The status page, the OpenAPI
// document, /healthz and /readyz are open to everyone; /metrics takes the role read, which
// Prometheus presents with authorization.credentials_file. 401 means that the token is unknown, 403
// that it does not grant the call. Nothing is done in either case.
//
// A path is only served exactly as the document spells it. A request that states its length twice
// is refused.
package httpapi
