package ownership

import (
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// What nodes ask each other about partitions, and how they respond.
type (
	// HoldingsRequest asks which of some partitions a node could hand over.
	HoldingsRequest struct {
		Partitions []int
	}
	// HoldingsResponse lists them. Later is set while the node can't tell because the mode is being
	// changed: its counts may not be in the store yet.
	HoldingsResponse struct {
		Held  []int
		Later bool
	}

	// ClaimRequest asks for partitions that the requesting node owns from now on. It also says
	// which partitions that node has taken over completely, and which it does not want any more.
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
	// ClaimResponse has a page of each partition that was asked for, as far as they fit.
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

	// OfferRequest tells a node that the sender has partitions that it owns. There is no response.
	OfferRequest struct {
		By         ring.Member
		Partitions []int
	}
)

// ClaimState is the result of a claim for one partition.
type ClaimState uint8

// The states of a claim. Their numbers are part of the wire format.
const (
	// Given: here is a page.
	Given ClaimState = iota
	// NotHeld: the node does not have the partition.
	NotHeld
	// Later: the node still decides about it, and considers itself or a third node the owner.
	Later
	// Again: what it sent so far is out of date; ask again from the beginning.
	Again
)
