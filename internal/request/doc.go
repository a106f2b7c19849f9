// Package request defines the conventions that all listeners of a node share, whatever their
// protocol: the bounds of a request, the spelling of names and durations, the time a request may
// take, and the meaning of an operation's error for a client.
//
// It knows no wire format. A listener encodes the same failures in its protocol: as problem+json
// with a status (package httpapi), or as an error with a code in front (package resp).
package request
