package ownership

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/ring"
)

// This file looks for the holders of partitions among those that owned them by the table before. As
// nodes come and go in good order, the others need not be asked: if they were, what a change costs
// each node would grow with their number.

// beforeTimeout is how long the owner before may take to say what it holds. Then all are asked.
const beforeTimeout = 250 * time.Millisecond

// ownersBefore returns which of the partitions each member owned by the table before. It leaves out
// those of nodes that are gone.
func (o *Partitions) ownersBefore(t *ring.Table, parts []int) map[*ring.Member][]int {
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

// takeOverFrom takes over partitions as takeOver does, but first asks those that owned them before.
func (o *Partitions) takeOverFrom(
	ctx context.Context, owners map[*ring.Member][]int, parts []int,
) {
	holders := map[int]*ring.Member{}
	var mu sync.Mutex
	var done sync.WaitGroup
	for m, owned := range owners {
		done.Go(func() {
			held := o.heldBefore(ctx, m, owned)
			mu.Lock()
			defer mu.Unlock()
			for _, p := range held {
				holders[p] = m
			}
		})
	}
	done.Wait()
	if rest := without(parts, holders); len(rest) > 0 {
		o.opt.Go(func(ctx context.Context) { o.takeOver(ctx, rest) })
	}
	o.claimAll(ctx, holders, o.lookAgain)
}

// heldBefore asks the owner before which of its partitions it still holds.
func (o *Partitions) heldBefore(ctx context.Context, m *ring.Member, parts []int) []int {
	ctx, cancel := context.WithTimeout(ctx, beforeTimeout)
	defer cancel()
	var a HoldingsResponse
	if err := o.opt.Peers.Ask(ctx, m, &HoldingsRequest{parts}, &a); err != nil {
		return nil
	}
	return a.Held
}
