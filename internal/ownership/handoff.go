package ownership

import (
	"context"
	"errors"
	"sync"
	"time"

	"twotier.dev/twotier"
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

const (
	// pageBytes is the approximate size of the partitions in one response.
	pageBytes = 512 << 10
	// handoffTimeout bounds the preparation of a partition, during which no node decides about it.
	handoffTimeout = 1500 * time.Millisecond
	// restTime is the pause before this node tries again to hand over a partition whose preparation
	// failed.
	restTime = 2 * time.Second
)

// Holdings lists which of the given partitions this node could hand over, and which it is taking
// over. While the mode changes, and in Redis, it answers Later: the asking node has yet to learn of
// the mode, and would decide while other nodes count in Redis.
func (o *Partitions) Holdings(q *HoldingsRequest) *HoldingsResponse {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return &HoldingsResponse{Later: true}
	}
	a := new(HoldingsResponse)
	for _, p := range q.Partitions {
		if !o.exists(p) {
			continue
		}
		switch o.parts[p].phase {
		case foreign:
		case incoming:
			a.Sought = append(a.Sought, p)
		default:
			a.Held = append(a.Held, p)
		}
	}
	return a
}

// HandOff answers a claim with pages of the partitions handed over, and with a reason for each of
// the others.
func (o *Partitions) HandOff(ctx context.Context, q *ClaimRequest) *ClaimResponse {
	o.recordClaimant(&q.By)
	o.finishHandoffs(&q.By, q.Taken)
	o.takeBack(&q.By, q.Refused)
	a := &ClaimResponse{Pages: make([]ClaimPage, len(q.Parts))}
	var done sync.WaitGroup
	for i, part := range q.Parts {
		state := o.acceptClaim(&q.By, part.Partition)
		a.Pages[i] = ClaimPage{Partition: part.Partition, State: state}
		if state == Given {
			done.Go(func() { o.beginHandoff(ctx, &a.Pages[i]) })
		}
	}
	done.Wait()
	o.fillPages(a, q.Parts)
	return a
}

func (o *Partitions) recordClaimant(from *ring.Member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claims[from.Name] = time.Now()
}

// fillPages adds the content of given partitions up to pageBytes. The other node asks for the rest.
func (o *Partitions) fillPages(a *ClaimResponse, parts []ClaimPart) {
	budget := pageBytes
	kept := a.Pages[:0]
	for i := range a.Pages {
		page := a.Pages[i]
		if page.State == Given {
			if budget <= 0 {
				continue
			}
			var err error
			page.Handoff, page.Next,
				err = o.opt.Counter.HandoffPage(page.Partition, parts[i].Cursor, budget)
			if err != nil {
				page.State = Again
			} else {
				budget -= sizeOf(page.Handoff)
			}
		}
		kept = append(kept, page)
	}
	a.Pages = kept
}

// sizeOf estimates the size of a part of a handover.
func sizeOf(h *syncer.Handoff) (size int) {
	for i := range h.Keys {
		size += 16 + len(h.Keys[i].Key) + 8*len(h.Keys[i].Buckets)
	}
	for _, r := range h.Rounds {
		for i := range r.Keys {
			size += 24 + len(r.Keys[i].Key) + 8*len(r.Keys[i].Adds)
		}
	}
	return size
}

// acceptClaim decides whether to give a partition to a member that claims it. That member must be
// the owner by this node's table too, or two nodes could take a partition from each other in turn.
// Until it is, this node keeps deciding.
func (o *Partitions) acceptClaim(to *ring.Member, p int) ClaimState {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.exists(p) {
		return NotHeld
	}
	t := o.opt.Table()
	s := &o.parts[p]
	switch {
	case s.kept: // this node will decide again, or the store will have everything
		return Later
	case s.phase == foreign, s.phase == incoming:
		return NotHeld
	case o.suspended: // given: the other node has to report whether it took it over
		return Later
	}
	if t.Find(to.Name) != t.Owner(p) {
		return Later
	}
	switch s.phase {
	case own, outgoing:
		if time.Now().Before(s.rest) {
			return Later
		}
		s.to = to
		o.enterLocked(p, moving)
	case moving, given:
		if s.to.Name != to.Name && t.Find(s.to.Name) >= 0 {
			return Later
		}
		s.to = to
	}
	return Given
}

// beginHandoff prepares a partition for the handoff. If an obstacle remains, such as a reservation
// that is neither confirmed nor undone, this node goes on deciding: the new owner would lack the
// reservation and all unflushed counts. If the counter has been closed, the new owner starts from
// the store.
func (o *Partitions) beginHandoff(ctx context.Context, page *ClaimPage) {
	ctx, cancel := context.WithTimeout(ctx, handoffTimeout)
	defer cancel()
	err := o.opt.Counter.BeginHandoff(ctx, page.Partition)
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.parts[page.Partition]
	defer func() { page.Gift = s.gift }()
	switch {
	case err == nil && (s.phase == moving || s.phase == given && s.paused && !o.suspended):
		o.gifts++
		s.gift, s.giver = o.gifts, o.opt.Self().Name
		o.enterLocked(page.Partition, given)
	case err == nil && (s.phase == own || s.phase == outgoing): // it was taken back meanwhile
		o.opt.Counter.StartOwning(page.Partition)
		page.State = Again
	case err == nil || errors.Is(err, twotier.ErrNotOwner) || s.phase != moving:
	case errors.Is(err, twotier.ErrUnavailable):
		o.takeBackLocked(page.Partition)
		s.rest = time.Now().Add(restTime)
		page.State = Later
	default:
		o.abandonLocked(page.Partition)
		page.State = NotHeld
	}
}

// finishHandoffs forgets partitions that another node has taken over.
func (o *Partitions) finishHandoffs(by *ring.Member, parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		if o.exists(p) {
			o.finishHandoffLocked(by, p)
		}
	}
}

// finishHandoffLocked forgets a partition that the given node has now taken over. It reports
// whether it did.
func (o *Partitions) finishHandoffLocked(by *ring.Member, p int) bool {
	s := &o.parts[p]
	switch {
	case s.phase != given || s.to.Name != by.Name:
		return false
	case s.paused:
		o.opt.Counter.StopOwning(p)
	case o.opt.Counter.FinishHandoff(p) != nil:
		return false
	}
	o.moves.Given++
	o.enterLocked(p, foreign)
	return true
}

// takeBack takes back partitions that another node received but no longer wants. Their owner will
// claim them.
func (o *Partitions) takeBack(by *ring.Member, parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		if !o.exists(p) {
			continue
		}
		s := &o.parts[p]
		switch {
		case s.phase != given && s.phase != moving || s.to.Name != by.Name:
		case o.suspended:
			s.kept = true
			o.enterLocked(p, foreign)
		default:
			o.takeBackLocked(p)
		}
	}
}

// offer offers a member the partitions that it owns and this node holds. A failed offer is repeated
// later. A partition is not abandoned while the member looks for its holder, and none is while the
// member changes its mode: the member would start it from the store.
func (o *Partitions) offer(ctx context.Context, m *ring.Member, parts []int) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = o.opt.Peers.Ask(ctx, m, &OfferRequest{o.opt.Self(), o.offerParts(m, parts)}, nil)
	var a HoldingsResponse
	if err := o.askHoldings(ctx, m, &HoldingsRequest{parts}, &a); err != nil {
		return
	}
	if a.Later {
		a.Sought = parts
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range a.Sought {
		if o.exists(p) {
			o.parts[p].sought = time.Now()
		}
	}
}

func (o *Partitions) offerParts(m *ring.Member, parts []int) (list []OfferPart) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		part := OfferPart{Partition: p}
		if s := &o.parts[p]; s.giver == m.Name {
			part.Gift = s.gift
		}
		list = append(list, part)
	}
	return list
}
