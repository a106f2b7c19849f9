// Package middlewaretest runs the examples of docs/middleware.md with their real frameworks and a
// real server, and compares their answers. It has only tests, which skip themselves where a
// framework can't be installed.
package middlewaretest
