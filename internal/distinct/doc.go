// Package distinct counts the different values of keys in a window: the devices of an account, the
// cards of an address.
//
// An [Engine] keeps a leaparray.Values for each key: when each value was last seen. Two copies
// merge by the later times, and a reset is a time as well. So whatever is sent twice, merged by two
// nodes or restored after a loss changes nothing, and a write without an answer is simply sent
// again.
//
// # Two tiers
//
// A value is in memory first, and in the [Store] (Redis) after the next flush. A key in the store
// has a version, which is drawn anew with each write. A node writes only if the store still has the
// version that the node has merged; otherwise it receives the whole key, merges it, and tries
// again. So a node with the current version has everything of the key, and whenever the version is
// unexpected, the node writes again whatever the store lacks: changes by other nodes and losses of
// the store need no other protocol. An idle key is compared every [Options.VerifyInterval].
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
// # Left out
//
// A lost flush goes unnoticed if the key has also left the memory of all nodes. Limits are about
// the present: they can't be combined with the time of a late event. A node that does not learn of
// a reset, and whose clock is behind, may lose values that it adds right after it, for as long as
// its clock is behind.
package distinct
