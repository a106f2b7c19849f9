// Package envoy serves Envoy's rate limit API: envoy.service.ratelimit.v3.RateLimitService over
// gRPC, and its JSON form for the HTTP API's POST /json.
//
// A [Limiter] decides. Domains and descriptors come from rules ([rules.Domain]), and mean the same
// as in envoyproxy/ratelimit, with these differences:
//
//   - Windows slide: 100 a minute applies to every minute, not only to each minute of the clock.
//   - A request is all or nothing. If one of its descriptors is over its limit, none of them is
//     counted, and neither is a refused request. (envoyproxy/ratelimit counts all of them, or with
//     STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT only the descriptor that is over.)
//   - duration_until_reset of a descriptor over its limit is how long to wait; of other descriptors
//     it is the window, after which all current hits have expired.
//   - Metrics never have values of descriptors: detailed_metric and value_to_metric do nothing.
//
// A descriptor with no hits is compared and not counted; if it is over its limit, no other
// descriptor of its request is counted. A descriptor with negative hits takes them back, regardless
// of the rest, and is never over its limit.
//
// A [Server] serves a Limiter over gRPC, with health, reflection, tokens and TLS, and bounds its
// connections and the memory of its requests, from their first frame until their answers are
// written. Both are safe for concurrent use.
package envoy
