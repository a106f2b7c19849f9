package ownership

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// FollowTable brings the phases in line with the table, and starts to take over the partitions that
// the table newly assigns to this node. Call it when there is a new table, and periodically: it
// also ends phases that take too long.
func (o *Partitions) FollowTable() {
	t := o.opt.Table()
	gained, offers := o.applyTable(t, time.Now())
	if len(gained) > 0 {
		owners := o.previousOwners(t, gained)
		o.spawn(context.Background(), func(ctx context.Context) {
			o.takeOverFromPrevious(ctx, owners, gained)
		})
	}
	for at, parts := range offers {
		o.opt.Go(func(ctx context.Context) { o.offer(ctx, t.Member(at), parts) })
	}
}

// applyTable changes phases according to a table. It returns the partitions to take over, and the
// partitions to offer by the index of their new owner.
func (o *Partitions) applyTable(t *ring.Table, now time.Time) (gained []int, offers map[int][]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return nil, nil
	}
	if t != o.table {
		o.table, o.before = t, o.table
		maps.DeleteFunc(o.claims, func(name string, _ time.Time) bool { return t.Find(name) < 0 })
	}
	offers = map[int][]int{}
	for p := range o.parts {
		s := &o.parts[p]
		switch assigned := t.OwnedBySelf(p); {
		case assigned && s.phase == foreign && !o.claimed[p]:
			o.enterLocked(p, incoming)
			o.claimed[p] = true
			gained = append(gained, p)
		case assigned && s.phase == outgoing:
			o.enterLocked(p, own)
		case !assigned && s.phase == own:
			o.enterLocked(p, outgoing)
		case !assigned && s.phase == incoming:
			o.enterLocked(p, foreign)
		case s.phase == outgoing:
			o.reviewOutgoingLocked(p, t, now, offers)
		case s.phase == given:
			o.reviewGivenLocked(p, t, now)
		}
	}
	return gained, offers
}

// reviewOutgoingLocked offers a partition that its new owner does not claim. In the end it lets the
// partition go, unless the new owner is looking for the partition's holder or busy claiming others.
// Pending counts are still flushed, and the new owner finds them in the store.
func (o *Partitions) reviewOutgoingLocked(
	p int, t *ring.Table, now time.Time, offers map[int][]int,
) {
	s := &o.parts[p]
	switch {
	case now.Sub(s.since) > abandonTimeout && now.Sub(s.sought) > abandonTimeout &&
		now.Sub(o.claims[t.Member(t.Owner(p)).Name]) > abandonTimeout:
		o.abandonLocked(p)
	case now.Sub(s.since) > offerAfter && now.Sub(s.offered) > time.Second:
		s.offered = now
		offers[t.Owner(p)] = append(offers[t.Owner(p)], p)
	}
}

// reviewGivenLocked takes a partition back if the node that received it is gone, or has not
// confirmed for too long that everything arrived. Rounds that both nodes send to the store count
// once.
func (o *Partitions) reviewGivenLocked(p int, t *ring.Table, now time.Time) {
	s := &o.parts[p]
	if t.Find(s.to.Name) >= 0 && now.Sub(s.since) < givenTimeout {
		return
	}
	if t.OwnedBySelf(p) {
		o.takeBackLocked(p)
		return
	}
	if now.Sub(s.since) < givenTimeout {
		return // the next owner may claim it
	}
	o.abandonLocked(p)
}

// Bounds of a takeover.
const (
	// askTimeout bounds one request about partitions.
	askTimeout = 2 * time.Second
	// laterPause is the wait before asking again for the holder of a partition, or for a partition
	// that another node considers its own.
	laterPause = 50 * time.Millisecond
	// brokenTimes is the number of consecutive failures to reach a member after which it counts as
	// gone. A single connection may break at any time.
	brokenTimes = 5
	// changeTimeout bounds the wait for members that change their mode.
	changeTimeout = time.Minute
)

func partsWithoutHolder(parts []int, holders map[int]*ring.Member) (rest []int) {
	for _, p := range parts {
		if holders[p] == nil {
			rest = append(rest, p)
		}
	}
	return rest
}

// takeOver takes over partitions that the table assigns to this node, from their holders or else
// from the store. If a partition has moved on by the time it is claimed, takeOver looks for its
// holder again.
func (o *Partitions) takeOver(ctx context.Context, parts []int) {
	// The replies describe different moments: a partition on its way from one member to another may
	// show up at neither. So it has no holder only if, twice in a row, no member held it or was
	// taking it over. The wait for members taking it over is bounded, because several of them could
	// wait for each other.
	missed := map[int]bool{}
	var by time.Time
	for {
		holders, sought := o.findHolders(ctx, o.opt.Table(), parts)
		if ctx.Err() != nil {
			return
		}
		if len(holders) > 0 {
			o.spawn(ctx, func(ctx context.Context) { o.claimAll(ctx, holders) })
		}
		if len(sought) > 0 && by.IsZero() {
			by = time.Now().Add(WaitTimeout)
		}
		var unheld, rest []int
		for _, p := range partsWithoutHolder(parts, holders) {
			unsought := !sought[p] || time.Now().After(by)
			if missed[p] && unsought || !o.stillWants(p) {
				unheld = append(unheld, p)
			} else {
				rest = append(rest, p)
			}
			missed[p] = unsought
		}
		o.beginFromStore(ctx, unheld)
		if parts = rest; len(parts) == 0 || !retry.Pause(ctx, laterPause) {
			return
		}
	}
}

// findHolders asks all other members which of the partitions they hold or are taking over. A member
// that can't be reached, or does not answer for as long as requests may wait, counts as holding
// none.
func (o *Partitions) findHolders(
	ctx context.Context, t *ring.Table, parts []int,
) (holders map[int]*ring.Member, sought map[int]bool) {
	holders, sought = map[int]*ring.Member{}, map[int]bool{}
	var mu sync.Mutex
	rpc.Broadcast(ctx, t, changeTimeout, func(ctx context.Context, m *ring.Member) {
		a := o.holdingsOf(ctx, m, parts)
		mu.Lock()
		defer mu.Unlock()
		for _, p := range a.Held {
			holders[p] = m
		}
		for _, p := range a.Sought {
			sought[p] = true
		}
	})
	return holders, sought
}

// holdingsOf asks a member about partitions, and retries while it is slow or changing its mode.
func (o *Partitions) holdingsOf(
	ctx context.Context, m *ring.Member, parts []int,
) HoldingsResponse {
	broken := 0
	for by := time.Now().Add(WaitTimeout); time.Now().Before(by); {
		var a HoldingsResponse
		err := o.askHoldings(ctx, m, &HoldingsRequest{parts}, &a)
		switch {
		case err == nil && !a.Later:
			return a
		case ctx.Err() != nil, o.isSuspended(), o.opt.Table().Find(m.Name) < 0:
			return HoldingsResponse{}
		case err == nil: // it is alive, and the change of mode will end
			by, broken = time.Now().Add(WaitTimeout), 0
		case !errors.Is(err, rpc.ErrUnreachable):
			broken = 0
		default:
			if broken++; broken == brokenTimes {
				return HoldingsResponse{}
			}
		}
		retry.Pause(ctx, laterPause)
	}
	return HoldingsResponse{}
}

// askHoldings waits only half of askTimeout, because the response needs no preparation.
func (o *Partitions) askHoldings(
	ctx context.Context, m *ring.Member, q *HoldingsRequest, a *HoldingsResponse,
) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	return o.opt.Peers.Ask(ctx, m, q, a)
}

// claimAll takes over partitions from their holders concurrently. It looks again for the holders of
// partitions that have moved on.
func (o *Partitions) claimAll(ctx context.Context, holders map[int]*ring.Member) {
	gone := func(parts []int) {
		o.spawn(ctx, func(ctx context.Context) {
			if retry.Pause(ctx, laterPause) {
				o.takeOver(ctx, parts)
			}
		})
	}
	from := map[*ring.Member][]int{}
	for p, m := range holders {
		from[m] = append(from[m], p)
	}
	var done sync.WaitGroup
	for m, parts := range from {
		slices.Sort(parts)
		done.Go(func() { o.claimFrom(ctx, m, parts, gone) })
	}
	done.Wait()
}

// beginFromStore makes this node decide about partitions that no node hands over, starting from the
// store. It does nothing if ctx is done.
func (o *Partitions) beginFromStore(ctx context.Context, parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for _, p := range parts {
		o.claimed[p] = false
		if o.parts[p].phase == incoming {
			o.opt.Counter.StartOwning(p)
			o.moves.FromStore++
			o.enterLocked(p, own)
		}
	}
}

// endClaims ends the claims of partitions whose results have been reported to the other node.
func (o *Partitions) endClaims(parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		o.claimed[p] = false
	}
}

// AcceptOffer claims partitions that another node holds although this node owns them, as after a
// split. It returns at once.
func (o *Partitions) AcceptOffer(q *OfferRequest) {
	o.spawn(context.Background(), func(ctx context.Context) {
		claims, released := o.partsToClaim(&q.By, q.Parts)
		if released {
			o.FollowTable() // claims what is gained
		}
		o.claimFrom(ctx, &q.By, claims, o.endClaims)
	})
}

// partsToClaim returns the offered partitions that this node has to claim. It releases partitions
// that the other node has taken over from this node and already offers back.
func (o *Partitions) partsToClaim(
	from *ring.Member, parts []OfferPart,
) (claims []int, released bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, part := range parts {
		p := part.Partition
		if !o.exists(p) {
			continue
		}
		if part.Gift == o.parts[p].gift {
			released = o.finishHandoffLocked(from, p) || released
		}
		if !o.claimed[p] && o.parts[p].phase == own {
			o.claimed[p] = true
			claims = append(claims, p)
		}
	}
	return claims, released
}

// This file looks for the holders of partitions among their owners by the previous table. While
// nodes come and go in good order, no other node has to be asked; asking all of them would make the
// cost of a change grow with the size of the cluster.

// beforeTimeout bounds the wait for a previous owner's reply. After that, all nodes are asked.
const beforeTimeout = 250 * time.Millisecond

// previousOwners groups partitions by their owner in the previous table. It leaves out owners that
// are gone.
func (o *Partitions) previousOwners(t *ring.Table, parts []int) map[*ring.Member][]int {
	o.mu.Lock()
	before := o.before
	o.mu.Unlock()
	if before == nil {
		return nil
	}
	owners := map[*ring.Member][]int{}
	for _, p := range parts {
		m := before.Member(before.Owner(p))
		if at := t.Find(m.Name); at >= 0 && at != t.Self() {
			owners[t.Member(at)] = append(owners[t.Member(at)], p)
		}
	}
	return owners
}

// takeOverFromPrevious takes over partitions as takeOver does, but asks their previous owners
// first.
func (o *Partitions) takeOverFromPrevious(
	ctx context.Context, owners map[*ring.Member][]int, parts []int,
) {
	holders := map[int]*ring.Member{}
	var mu sync.Mutex
	var done sync.WaitGroup
	for m, owned := range owners {
		done.Go(func() {
			held := o.askPreviousOwner(ctx, m, owned)
			mu.Lock()
			defer mu.Unlock()
			for _, p := range held {
				holders[p] = m
			}
		})
	}
	done.Wait()
	if rest := partsWithoutHolder(parts, holders); len(rest) > 0 {
		o.spawn(ctx, func(ctx context.Context) { o.takeOver(ctx, rest) })
	}
	o.claimAll(ctx, holders)
}

// askPreviousOwner asks a previous owner which of the partitions it still holds.
func (o *Partitions) askPreviousOwner(ctx context.Context, m *ring.Member, parts []int) []int {
	ctx, cancel := context.WithTimeout(ctx, beforeTimeout)
	defer cancel()
	var a HoldingsResponse
	if err := o.opt.Peers.Ask(ctx, m, &HoldingsRequest{parts}, &a); err != nil {
		return nil
	}
	return a.Held
}
