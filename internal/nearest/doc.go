// Package nearest guesses what a mistyped name was meant to be, for error messages. It is a pure
// function and safe for concurrent use.
package nearest
