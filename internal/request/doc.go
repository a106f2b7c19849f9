// Package request has what every door of a node agrees on, whatever it speaks: what one request may
// contain, how names and durations are spelled, how long a request may take, and what an error of
// an operation means to a client.
//
// It knows no wire format. A door says the same things in its own form: as problem+json with a
// status (package httpapi), or as an error with a code in front (package resp).
package request
