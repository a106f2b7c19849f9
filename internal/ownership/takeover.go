package ownership

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Bounds of a takeover.
const (
	// askTimeout bounds one request about partitions.
	askTimeout = 2 * time.Second
	// maxHolders is how often to look for the holder of a partition that keeps changing hands.
	maxHolders = 5
	// laterPause is the wait before asking again for a partition that another node considers its
	// own.
	laterPause = 50 * time.Millisecond
)

// without returns the partitions that have no holder.
func without(parts []int, holders map[int]*ring.Member) (rest []int) {
	for _, p := range parts {
		if holders[p] == nil {
			rest = append(rest, p)
		}
	}
	return rest
}

// takeOver takes over partitions that the table assigns to this node, from their holders or else
// from the store. If a partition has moved on by the time it is claimed, its holder is looked for
// again, up to so many times.
func (o *Partitions) takeOver(ctx context.Context, parts []int, times int) {
	if times == 0 {
		o.beginFromStore(parts)
		return
	}
	// The answers are of different moments: what was on its way from one member to another may be
	// at neither. So a partition has no holder if nobody held it, or was taking it over, twice.
	missed := map[int]bool{}
	for by := time.Now().Add(WaitTimeout); len(parts) > 0; {
		holders, sought := o.findHolders(ctx, o.opt.Table(), parts)
		if len(holders) > 0 {
			o.opt.Go(func(ctx context.Context) { o.claimAll(ctx, holders, o.lookAgain(times-1)) })
		}
		var unheld, rest []int
		for _, p := range without(parts, holders) {
			if missed[p] && !sought[p] || ctx.Err() != nil || time.Now().After(by) {
				unheld = append(unheld, p)
			} else {
				rest = append(rest, p)
			}
			missed[p] = !sought[p]
		}
		o.beginFromStore(unheld)
		if parts = rest; len(sought) > 0 {
			retry.Pause(ctx, laterPause)
		}
	}
}

// lookAgain returns what to do with partitions that have moved on: look for their holders again, up
// to so many times.
func (o *Partitions) lookAgain(times int) func(gone []int) {
	return func(gone []int) {
		o.opt.Go(func(ctx context.Context) { o.takeOver(ctx, gone, times) })
	}
}

// findHolders asks all other members which of the partitions they hold, and which they are taking
// over. A member that can't be reached, or does not answer for as long as requests may wait, counts
// as holding none.
func (o *Partitions) findHolders(
	ctx context.Context, t *ring.Table, parts []int,
) (holders map[int]*ring.Member, sought map[int]bool) {
	holders, sought = map[int]*ring.Member{}, map[int]bool{}
	var mu sync.Mutex
	timeout := o.opt.PrepareTime + WaitTimeout
	rpc.Broadcast(ctx, t, timeout, func(ctx context.Context, m *ring.Member) {
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

// holdingsOf asks a member about partitions, and retries while it is slow or
// changing its mode.
func (o *Partitions) holdingsOf(
	ctx context.Context, m *ring.Member, parts []int,
) HoldingsResponse {
	for by := time.Now().Add(WaitTimeout); time.Now().Before(by); {
		var a HoldingsResponse
		err := o.askHoldings(ctx, m, &HoldingsRequest{parts}, &a)
		switch {
		case err == nil && !a.Later:
			return a
		case errors.Is(err, rpc.ErrUnreachable), ctx.Err() != nil, o.isSuspended(),
			o.opt.Table().Find(m.Name) < 0:
			return HoldingsResponse{}
		case err == nil: // it is alive, and the change of mode will end
			by = time.Now().Add(WaitTimeout)
		}
		retry.Pause(ctx, laterPause)
	}
	return HoldingsResponse{}
}

// askHoldings only waits for half of askTimeout, because the response needs no preparation.
func (o *Partitions) askHoldings(
	ctx context.Context, m *ring.Member, q *HoldingsRequest, a *HoldingsResponse,
) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	return o.opt.Peers.Ask(ctx, m, q, a)
}

// claimAll takes over partitions from their holders concurrently, and passes those that have moved
// on to gone.
func (o *Partitions) claimAll(
	ctx context.Context, holders map[int]*ring.Member, gone func(parts []int),
) {
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

// beginFromStore makes this node decide about partitions that nobody hands over, starting from the
// store.
func (o *Partitions) beginFromStore(parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		o.claimed[p] = false
		if o.parts[p].phase == incoming {
			o.opt.Counter.StartOwning(p)
			o.moves.FromStore++
			o.enterLocked(p, own)
		}
	}
}

// unclaim records that the other node has been told everything about partitions.
func (o *Partitions) unclaim(parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		o.claimed[p] = false
	}
}

// Offered claims partitions that another node holds although this node owns them, as after a split.
// It returns at once.
func (o *Partitions) Offered(q *OfferRequest) {
	o.opt.Go(func(ctx context.Context) {
		claims, released := o.toClaim(&q.By, q.Parts)
		if released {
			o.Follow() // claims what is gained
		}
		o.claimFrom(ctx, &q.By, claims, o.unclaim)
	})
}

// toClaim returns which of the partitions that another node offers are to be claimed from it. It
// releases those that the other has taken over from this node and already offers back.
func (o *Partitions) toClaim(
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
			released = o.releaseLocked(from, p) || released
		}
		if !o.claimed[p] && o.parts[p].phase == own {
			o.claimed[p] = true
			claims = append(claims, p)
		}
	}
	return claims, released
}
