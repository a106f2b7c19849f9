// Package gated checks the middleware of a framework: a server of that framework must answer like
// those of all others. It sends requests and compares statuses, headers and bodies; tests start the
// servers.
package gated
