// Package elapsed measures how much time has passed, including time during which the machine was
// suspended.
//
// The monotonic clock in a time.Time stops while a machine is suspended (CLOCK_MONOTONIC), and the
// wall clock may be set back. A [Clock] uses whichever of the two has advanced further since it was
// last read. So it never goes back, and never reports less time than has passed. A wall clock that
// is set forward looks like a suspension, so use a Clock to decide that something is over: a lease,
// another node's deadline, a reservation.
//
// A [Pulse] detects that the process stood still, by the same two clocks.
//
// A Clock is safe for concurrent use.
package elapsed
