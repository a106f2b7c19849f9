// Package arithmetic has the ways in which limiters count a window, without what surrounds them: no
// network, no clock and no lock, so that only their arithmetic is compared. twotier's is
// [twotier.dev/twotier/leaparray]; the others are written here as their authors describe them.
//
// A window is of one key. Events come in the order of their times, which are unix milliseconds, and
// a window is half open at its older end.
package arithmetic
