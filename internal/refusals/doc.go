// Package refusals remembers for a moment what owners on other nodes refused.
//
// A caller that is over its limit often retries at once. A key that its owner refused is refused
// here as well, without a message, until it could pass or a second has gone by, whichever is first.
// It could only pass earlier if counts are taken back, reset, or released with a reservation;
// whoever learns of that calls [Cache.Forget], or [Cache.Reset].
//
// A [Cache] is safe for concurrent use. It may forget early, but never remembers for longer.
package refusals
