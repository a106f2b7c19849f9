// Package distinct counts how many different values keys have had in a window: the devices of an
// account, the cards of an address.
//
// An [Engine] keeps, for each key, a sketch.Set for every bucket of the ladder of its namespace. A
// window is the union of the buckets that it touches on the finest level that covers it, the oldest
// one included: so a count is never below the true number, apart from its stated error, and may
// include values that were seen up to a bucket before the window began.
//
// # Two tiers
//
// A value is in memory first, and in the [Store] (Redis) after the next flush. A bucket only ever
// grows, and merging is idempotent: what was sent twice, merged by two nodes, or restored after a
// loss, changes nothing. So there are no numbered rounds, and what got no answer is sent again. A
// key in the store has a version, which is drawn anew with each write. A node writes only if the
// version is the one that it has merged; if not, it is told the key as it is, merges that, and
// tries again. So whoever holds a version has everything of the key, and whatever the store lacks
// when its version is another one than expected is written again: changes by other nodes and losses
// of the store need no other protocol. An idle key is compared every [Options.VerifyInterval].
//
// # Who decides
//
// The owner of a partition decides about its keys in memory, see package ownership; the node asks
// it. A node that begins to decide first asks all others for what they have of the partition and
// the store does not. Whoever counts in place of an owner that can't be reached does the same as
// the owner, and both meet in the store. While the cluster counts in Redis, every node decides
// about any key by reading, comparing, and writing if the version has not changed: in the order in
// which Redis executes them.
//
// # Resets
//
// A reset empties a key in the store and leaves a mark there, which grows with each reset. A node
// that finds a later mark than its own forgets all it had of the key before. All nodes that can be
// reached are told at once, so nothing that is added afterwards is taken for older.
//
// The store makes a reset only if the key has the version that was expected, like every write. A
// reset that got no answer can't be made any more once the key has another version. All nodes are
// told of it as well: each asks the store before it adds to the key again, and writes another
// version if the store still has the expected one. While the store can't be asked, a node keeps
// apart what is added, so that it stays if the reset turns out to have been made.
//
// # Ladders that differ
//
// Each level of a ladder has the values of its whole span, so a value is in one bucket of each.
// What nodes with another ladder have added is in the levels of which both have the width, and in
// those whose buckets contain theirs. So while ladders differ, a count over a window that is read
// by a finer level may lack what such a node has added, until that node has the ladder too.
//
// # Left out
//
// A lost flush is not noticed if the key also left the memory of all nodes. Limits are about the
// present: they can't be combined with the time of a late event.
package distinct
