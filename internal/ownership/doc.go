// Package ownership tracks the partitions that a node decides about, and moves them between nodes.
//
// The ring's table assigns each partition to an owner. Each node takes over the partitions that the
// table assigns to it. A node hands a partition over only to the owner according to its own table,
// and keeps deciding until then. So some node always decides, and two nodes that can reach each
// other never both do.
//
// # Phases
//
// A partition goes foreign -> incoming -> own on its way in, and own -> outgoing -> moving -> given
// -> foreign on its way out. For a takeover, a node asks the owner by its previous table, or else
// all others, for the holder of the partition ([HoldingsRequest]), and claims it from the holder
// page by page ([ClaimRequest]), including the counts in memory. If there is no holder, or the
// holder is gone, the new owner starts from the store. If nobody claims a partition from its
// holder, the holder offers it to the owner ([OfferRequest]), and finally lets it go.
//
// The counter keeps a simpler form of this state: it refuses operations on partitions that the node
// does not own, under the partition's lock, so that no decision slips through while ownership
// changes.
//
// # Suspension
//
// While the cluster changes its mode, a node makes no decisions: see [Partitions.Suspend].
//
// # Standstill
//
// A node that stood still makes no decisions until it has learned its partitions anew: see
// [Partitions.Relearn].
//
// [Partitions] is safe for concurrent use. It is independent of operations and of the transport of
// its requests.
package ownership
