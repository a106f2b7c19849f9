// Package refusals briefly remembers operations that owners on other nodes refused.
//
// A caller over its limit often retries immediately. A key that its owner refused is refused by
// this node as well, without a message, until it could pass or a second has gone by, whichever is
// first. It could only pass earlier if counts are taken back, reset, or released with a
// reservation; code that learns of that calls [Cache.Forget] or [Cache.Reset].
//
// Of 4,000 acquires of a key over its limit, 200 a second, 25 reach the owner, and without a Cache
// all of them (TestRememberedRefusalsSaveForwards in internal/e2e/simtest). The loans of package
// hotkeys save as much, but only for keys above --hot-rate: many callers over their limits, each of
// them slow, would reach the owners with every retry.
//
// A [Cache] is safe for concurrent use. It may forget early, but never remembers for longer.
package refusals
