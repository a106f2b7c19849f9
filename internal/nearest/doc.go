// Package nearest guesses the intended name behind a mistyped one, for error messages. It is a pure
// function and safe for concurrent use.
package nearest
