// Package distinct counts the different values of keys in a window: the devices of an account, the
// cards of an address.
//
// An [Engine] keeps, for each key, a sketch.Set for every bucket of the ladder of its namespace. A
// window is the union of the buckets that it touches on the finest level that covers it, the oldest
// one included: so a count is never below the true number, apart from its stated error, and may
// include values from up to one bucket before the window began.
//
// # Two tiers
//
// A value is in memory first, and in the [Store] (Redis) after the next flush. Buckets only ever
// grow, and merging is idempotent: a bucket that is sent twice, merged by two nodes, or restored
// after a loss changes nothing. So there are no numbered rounds, and a write without an answer is
// simply sent again. A key in the store has a version, which is drawn anew with each write. A node
// writes only if the store still has the version that the node has merged; otherwise it receives
// the whole key, merges it, and tries again. So a node with the current version has everything of
// the key, and whenever the version is unexpected, the node writes again whatever the store lacks:
// changes by other nodes and losses of the store need no other protocol. An idle key is compared
// every [Options.VerifyInterval].
//
// # Ownership
//
// The owner of a partition decides about its keys in memory, see package ownership; other nodes ask
// the owner. A node that becomes the owner first asks all others for their unflushed values of the
// partition. A node that counts in place of an unreachable owner works as the owner does, and both
// meet in the store. While the cluster counts in Redis, every node decides about any key by
// reading, comparing, and writing if the version has not changed: the order of execution in Redis
// decides.
//
// # Resets
//
// A reset empties a key in the store and leaves a mark there, which grows with each reset. A node
// that finds a later mark than its own forgets its older values of the key. All nodes that can be
// reached learn of the mark at once, so no value added afterwards is taken for older.
//
// Like every write, a reset succeeds only if the key has the expected version. A reset without an
// answer can't succeed any more once the key has another version. All nodes learn of it as well:
// each asks the store before it adds to the key again, and writes another version if the store
// still has the expected one. While the store can't be asked, a node also keeps new values
// separately, so that they stay if the reset turns out to have been made. It passes such resets on
// with its values, because a node that has begun since does not know of them.
//
// # Ladders that differ
//
// Each level of a ladder has the values of its whole span, so a value is in one bucket of each
// level. The values of nodes with another ladder are in the levels that both ladders have, and in
// levels whose buckets contain theirs. So while ladders differ, a count over a window that is read
// from a finer level may lack such a node's values until that node has the ladder too.
//
// # Left out
//
// A lost flush goes unnoticed if the key has also left the memory of all nodes. Limits are about
// the present: they can't be combined with the time of a late event.
package distinct
