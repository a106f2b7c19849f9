// Package arithmetic has the ways in which limiters count a window, reduced to their arithmetic:
// there is no network, no clock and no lock. twotier's is [twotier.dev/twotier/leaparray]; the
// others are written here as their authors describe them.
//
// A window is of one key. Events come in the order of their times, which are unix milliseconds, and
// a window is half open at its older end.
package arithmetic
