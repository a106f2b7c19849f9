// Package ownership keeps which partitions a node decides about, and moves them between nodes.
//
// The ring's table says who should own a partition. Each node takes over what the table gives to
// it, and hands over what it has only to the owner by its own table: until then it decides, so at
// every moment somebody does, and never two that can reach each other.
//
// # Phases
//
// A partition goes foreign -> incoming -> own on its way in, and own -> outgoing -> moving -> given ->
// foreign on its way out. A takeover asks all others who holds a partition ([HoldingsRequest]) and
// claims it from there page by page ([ClaimRequest]): what is in memory comes along. If nobody
// holds it, or the holder is gone, the new owner begins with what the store has. A holder that
// nobody comes for offers the partition ([OfferRequest]), and in the end lets go of it.
//
// The counter knows the same in a simpler form: it refuses operations on what the node does not
// own, under the lock of the partition, so that no decision slips in between.
//
// # Suspension
//
// While the mode of the cluster changes a node decides nothing: see [Partitions.Suspend].
//
// A [Partitions] may be used by several goroutines. It knows nothing of operations, or of how
// requests travel.
package ownership
