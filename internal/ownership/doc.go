// Package ownership tracks which partitions a node decides about, and moves them between nodes.
//
// The ring's table says who should own a partition. Each node takes over the partitions that the
// table assigns to it. A node hands a partition over only to the owner according to its own table,
// and keeps deciding until then. So there is always a node that decides, and there are never two
// that can reach each other.
//
// # Phases
//
// A partition goes foreign -> incoming -> own on its way in, and own -> outgoing -> moving -> given
// -> foreign on its way out. For a takeover, a node asks the owner by its previous table, or
// else all others, who holds the partition ([HoldingsRequest]), and claims it from the holder page
// by page ([ClaimRequest]), together with what is in memory. If nobody holds it, or the holder is
// gone, the new owner starts from the store. If nobody claims a partition from its holder, the
// holder offers it to the owner ([OfferRequest]), and finally lets it go.
//
// The counter knows a simpler form of this: it refuses operations on partitions that the node does
// not own, under the partition's lock, so that no decision slips through while ownership changes.
//
// # Suspension
//
// While the cluster changes its mode, a node makes no decisions: see [Partitions.Suspend].
//
// [Partitions] is safe for concurrent use. It knows nothing about operations, or about how requests
// travel.
package ownership
