package ownership

import (
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// The requests between nodes about partitions, and the responses.
type (
	// HoldingsRequest asks which of the given partitions a node could hand over.
	HoldingsRequest struct {
		Partitions []int
	}
	// HoldingsResponse lists them, and the partitions that the node is taking over itself: they may
	// be on their way to it. Later is set while the node changes its mode, when its counts may not
	// be in the store yet, or counts in Redis.
	HoldingsResponse struct {
		Held   []int
		Sought []int
		Later  bool
	}

	// ClaimRequest asks for partitions that the requesting node owns from now on. It also lists
	// partitions that the requesting node has taken over completely, and partitions that it no
	// longer wants.
	ClaimRequest struct {
		By      ring.Member
		Parts   []ClaimPart
		Taken   []int
		Refused []int
	}
	// ClaimPart asks for a partition, starting at a page.
	ClaimPart struct {
		Partition int
		Cursor    uint64
	}
	// ClaimResponse holds one page of each requested partition, as many as fit.
	ClaimResponse struct {
		Pages []ClaimPage
	}
	// ClaimPage is one page of a partition.
	ClaimPage struct {
		Partition int
		State     ClaimState
		// Next is the cursor of the next page, 0 after the last.
		Next    uint64
		Handoff *syncer.Handoff
		// Gift is the number of the handoff.
		Gift uint64
	}

	// OfferRequest lists partitions that the sender holds and the receiver owns. It has no
	// response.
	OfferRequest struct {
		By    ring.Member
		Parts []OfferPart
	}
	// ReturnRequest reports that the sender stood still and is back: the receiver no longer counts
	// in its place. The reply, which is empty, follows once the store has these counts.
	ReturnRequest struct {
		By ring.Member
	}

	// OfferPart offers a partition. Gift is the number of the handoff by which the sender got it
	// from the receiver, or 0 if it did not. So a late offer is no evidence about a later handoff.
	OfferPart struct {
		Partition int
		Gift      uint64
	}
)

// ClaimState is the result of a claim for one partition.
type ClaimState uint8

// The states of a claim. Their numbers are part of the wire format.
const (
	// Given: the response holds a page.
	Given ClaimState = iota
	// NotHeld: the node does not hold the partition.
	NotHeld
	// Later: the node still decides about it, and considers itself or a third node the owner.
	Later
	// Again: the pages sent so far are out of date; ask again from the beginning.
	Again
)
