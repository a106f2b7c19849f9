// Package refusals briefly remembers operations that owners on other nodes refused.
//
// A caller over its limit often retries immediately. A key that its owner refused is refused by
// this node as well, without a message, until it could pass or a second has gone by, whichever is
// first. It could only pass earlier if counts are taken back, reset, or released with a
// reservation; code that learns of that calls [Cache.Forget] or [Cache.Reset].
//
// A [Cache] is safe for concurrent use. It may forget early, but never remembers for longer.
package refusals
