// Package ownership tracks which partitions a node decides for, and moves them between nodes.
//
// The ring's table says who should own a partition. Each node takes over what the table assigns to
// it, and hands a partition over only to the node that owns it by the handing node's own table.
// Until then it keeps deciding. So there is always a node that decides, and there are never two
// that can reach each other.
//
// # Phases
//
// A partition goes foreign -> incoming -> own on its way in, and own -> outgoing -> moving -> given
// -> foreign on its way out. For a takeover, a node asks all others who holds the partition
// ([HoldingsRequest]) and claims it from the holder page by page ([ClaimRequest]), together with
// what is in memory. If nobody holds it, or the holder is gone, the new owner starts from the
// store. A holder that nobody claims a partition from offers it ([OfferRequest]), and finally lets
// it go.
//
// The counter knows a simpler form of this: it refuses operations on partitions that the node does
// not own, under the partition's lock, so that no decision slips through while ownership changes.
//
// # Suspension
//
// While the cluster changes its mode, a node makes no decisions: see [Partitions.Suspend].
//
// [Partitions] is safe for concurrent use. It does not know about operations, or how requests
// travel.
package ownership
