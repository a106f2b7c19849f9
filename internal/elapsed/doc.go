// Package elapsed measures how much time has passed, including what a machine slept through.
//
// The monotonic clock that time.Time carries stands still while a machine is suspended
// (CLOCK_MONOTONIC), and the wall clock may be set back. A [Clock] takes whichever of the two has
// gone on further since it was read last: it never goes backwards, and what happens while nobody
// looks is never shorter than it was. A wall clock that is set forward looks like a pause, so a
// Clock is for deciding that something is over: a lease, a deadline of another node, a reservation.
//
// A Clock may be used by several goroutines.
package elapsed
