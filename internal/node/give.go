package node

import (
	"context"
	"errors"
	"sync"

	"twotier/ring"
	"twotier/syncer"
)

// holdings returns those of some partitions that this node could hand over.
func (y *tenancy) holdings(parts []int) *HoldingsAnswer {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.suspended {
		return &HoldingsAnswer{Later: !y.n.inRedis()}
	}
	a := new(HoldingsAnswer)
	for _, p := range parts {
		if p < 0 || p >= len(y.parts) {
			continue
		}
		if ph := y.parts[p].phase; ph != foreign && ph != gaining {
			a.Held = append(a.Held, p)
		}
	}
	return a
}

// give answers a claim.
func (y *tenancy) give(ctx context.Context, q *ClaimQuestion) *ClaimAnswer {
	y.release(&q.By, q.Taken)
	y.resume(&q.By, q.Refused)
	a := &ClaimAnswer{Pages: make([]ClaimPage, len(q.Parts))}
	var done sync.WaitGroup
	for i, part := range q.Parts {
		a.Pages[i] = ClaimPage{Partition: part.Partition, State: y.promise(&q.By, part.Partition)}
		if a.Pages[i].State == ClaimGiven {
			done.Go(func() { y.cede(ctx, &a.Pages[i]) })
		}
	}
	done.Wait()
	budget := pageBytes
	kept := a.Pages[:0]
	for i := range a.Pages {
		page := a.Pages[i]
		if page.State == ClaimGiven {
			if budget <= 0 {
				continue // it is asked for again
			}
			var err error
			if page.Handover, page.Next, err = y.n.opt.Counter.Page(page.Partition, q.Parts[i].Cursor, budget); err != nil {
				page.State = ClaimAgain
			} else {
				budget -= sizeOf(page.Handover)
			}
		}
		kept = append(kept, page)
	}
	a.Pages = kept
	return a
}

// sizeOf is about what a part of a handover takes.
func sizeOf(h *syncer.Handover) (size int) {
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

// promise decides whether a partition is given to a member that claims it: it has to be the owner by this node's table too, or two
// would take it from each other in turn. Until then this node decides.
func (y *tenancy) promise(to *ring.Member, p int) ClaimState {
	y.mu.Lock()
	defer y.mu.Unlock()
	if p < 0 || p >= len(y.parts) || y.suspended {
		return ClaimNone
	}
	t := y.n.table()
	s := &y.parts[p]
	if s.phase == foreign || s.phase == gaining {
		return ClaimNone
	}
	if t.Find(to.Name) != t.Owner(p) {
		return ClaimLater
	}
	switch s.phase {
	case own, losing:
		s.to = to
		y.turnLocked(p, moving)
	case moving, given:
		if s.to.Name != to.Name && t.Find(s.to.Name) >= 0 {
			return ClaimLater
		}
		s.to = to
	}
	return ClaimGiven
}

// cede makes a partition ready to be handed over. If that can't be done now the new owner begins with what the store has.
func (y *tenancy) cede(ctx context.Context, page *ClaimPage) {
	ctx, cancel := context.WithTimeout(ctx, cedeTimeout)
	defer cancel()
	err := y.n.opt.Counter.Cede(ctx, page.Partition)
	y.mu.Lock()
	defer y.mu.Unlock()
	s := &y.parts[page.Partition]
	switch {
	case err == nil && s.phase == moving:
		y.turnLocked(page.Partition, given)
	case err == nil || errors.Is(err, syncer.ErrElsewhere):
	default:
		y.letGoLocked(page.Partition)
		page.State = ClaimNone
	}
}

// release forgets partitions that another node has taken over.
func (y *tenancy) release(by *ring.Member, parts []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		if p < 0 || p >= len(y.parts) {
			continue
		}
		if s := &y.parts[p]; s.phase == given && s.to.Name == by.Name && y.n.opt.Counter.Release(p) == nil {
			y.moves.Given++
			y.turnLocked(p, foreign)
		}
	}
}

// resume takes back partitions that another node was told about and does not want any more. Whoever they belong to comes for them.
func (y *tenancy) resume(by *ring.Member, parts []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		if p < 0 || p >= len(y.parts) {
			continue
		}
		if s := &y.parts[p]; (s.phase == given || s.phase == moving) && s.to.Name == by.Name {
			y.takeBackLocked(p)
		}
	}
}

// offer tells a member that this node has partitions of its.
func (y *tenancy) offer(ctx context.Context, m *ring.Member, parts []int) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = y.n.opt.Peers.Ask(ctx, m, &OfferQuestion{y.n.self(), parts}, nil) // it is offered again
}
