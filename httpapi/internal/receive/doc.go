// Package receive checks the form of requests over HTTP, their framing, path, host and media type,
// and reads their bodies within the bounds of memory. Most of the checks are against attacks.
package receive
