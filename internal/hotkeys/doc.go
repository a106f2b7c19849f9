// Package hotkeys has every node count the keys that are too hot for their owner alone.
//
// A key is hot while other nodes forward more operations on it to its owner than Options.Rate. Its
// owner then grants all nodes a lease of a few seconds, and they count the key in their own memory,
// beside the owner: what they count meets in the store (syncer.Counter.Share). Each time the leases
// are prolonged the owner hears how much was counted under them, and lets them end once that, too,
// has become less than half.
//
// A [Tracker] is both sides of that: the owner's grants and the leases that a node holds. A lease
// ends for its holder no later than for its owner, whatever is delayed: the owner reckons from when
// it stopped waiting for the answer, and so does the holder. A verdict on a leased key may miss
// what others have counted in the last syncer.Counter.StaleAfter.
//
// A Tracker may be used by several goroutines. It knows nothing of how a key's operations are
// carried out, nor of how requests travel.
package hotkeys
