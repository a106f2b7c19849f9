// Package hotkeys lets every node count the keys that are too hot for their owner alone.
//
// A key is hot while other nodes forward more operations on it to its owner than Options.Rate. The
// owner then grants all nodes a lease of a few seconds, under which they count the key in their own
// memory; the counts of all nodes meet in the store (syncer.Counter.Share). Whenever it renews the
// leases, the owner learns how much was counted under them. Once that has dropped below half the
// rate too, it lets the leases end.
//
// A [Tracker] is both sides of this: the grants of an owner and the leases that a node holds.
// However late messages are, a lease ends for its holder no later than for its owner, because both
// measure its time from the moment the owner stopped waiting for the answer. A decision on a leased
// key may miss what other nodes counted within the last syncer.Counter.StaleAfter.
//
// A Tracker is safe for concurrent use. It does not know how operations on a key are executed, or
// how requests travel.
package hotkeys
