// Package wire reads and writes the JSON of the HTTP API, and its problems.
//
// A [Scanner] reads JSON one token at a time and reports mistakes as a [Problem], which is an error
// as clients see it (RFC 9457). The functions Append... write JSON. The package knows no
// operations; package codec does.
package wire
