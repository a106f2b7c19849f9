package ownership

import (
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// What nodes ask each other about partitions, and how they respond.
type (
	// HoldingsRequest asks which of some partitions a node has and could hand over.
	HoldingsRequest struct {
		Partitions []int
	}
	// HoldingsResponse has those that it has. Later is set while it can't tell, because the mode is
	// being changed: what it has counted may not be in the store yet.
	HoldingsResponse struct {
		Held  []int
		Later bool
	}

	// ClaimRequest asks for partitions that the asking node owns from now on, and says which it has
	// taken over in full, and which it does not want any more.
	ClaimRequest struct {
		By      ring.Member
		Parts   []ClaimPart
		Taken   []int
		Refused []int
	}
	// ClaimPart asks for a partition, from a page on.
	ClaimPart struct {
		Partition int
		Cursor    uint64
	}
	// ClaimResponse has a page of each partition that was asked for, as far as it fits.
	ClaimResponse struct {
		Pages []ClaimPage
	}
	// ClaimPage is one page of a partition.
	ClaimPage struct {
		Partition int
		State     ClaimState
		// Next is the cursor of the next page, 0 after the last.
		Next     uint64
		Handover *syncer.Handoff
	}

	// OfferRequest says that a node has partitions that the one which is told owns. There is no
	// response.
	OfferRequest struct {
		By         ring.Member
		Partitions []int
	}
)

// ClaimState says what becomes of a claim.
type ClaimState uint8

// The states of a claim. Their numbers are part of the wire format.
const (
	// Given: here is a page.
	Given ClaimState = iota
	// NotHeld: the node does not have the partition.
	NotHeld
	// Later: the node still decides about it, and takes itself, or a third, for the owner.
	Later
	// Again: what it told so far is out of date; it is to be asked from the beginning.
	Again
)
