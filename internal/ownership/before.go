package ownership

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/ring"
)

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
