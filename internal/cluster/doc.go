// Package cluster describes a twotier cluster as one of its nodes sees it: the mode, the members,
// who owns what, the health of the store, and the node's own counters.
//
// These are the values that an [twotier.dev/twotier/httpapi.Service] returns. GET /v1/cluster
// renders a [View] as JSON, /metrics renders [Stats]. They live in a separate package so that
// implementing a Service does not pull in the HTTP server.
//
// The package holds data only. A value is a snapshot that its receiver owns; nothing in it changes
// later.
package cluster
