// Package refusals remembers, for a moment, what owners on other nodes have refused.
//
// A caller that is over its limit often asks again at once. A key that its owner refused is refused
// here as well, without a message, until it could pass or a second is up, whichever is first. Only
// counts that are taken back, reset, or given up by a reservation could let it pass earlier: who
// learns of one of those calls [Cache.Forget].
//
// A [Cache] may be used by several goroutines. It forgets as it likes, but never remembers longer.
package refusals
