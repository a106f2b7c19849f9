// Package codec turns the JSON of the HTTP API into operations, and their results into JSON.
//
// A [Decoder] reads bodies into a [twotier.dev/twotier/internal/ask.Request]; the keys of its
// operations are views into the body. An [Encoder] appends the answers, in the form in which the
// request spelled the operations. Both reuse their memory, and are for one goroutine.
package codec
