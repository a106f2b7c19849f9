package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier/ring"
	"twotier/syncer"
)

// Bounds of handing over.
const (
	// chunk is how many partitions are asked for at a time: so many stand still while they are on their way.
	chunk = 16
	// pageBytes is about how much of them an answer may hold.
	pageBytes = 512 << 10
	// askTimeout bounds one question about partitions, cedeTimeout making one ready.
	askTimeout  = 2 * time.Second
	cedeTimeout = 1500 * time.Millisecond
	// laterPause is the wait before asking again for a partition that another node takes for its own.
	laterPause = 50 * time.Millisecond
)

// gain takes over partitions that the table gives to this node: from who has them, or else with what the store has.
func (y *tenancy) gain(ctx context.Context, t *ring.Table, parts []int) {
	holders := y.findHolders(ctx, t, parts)
	var rest []int
	for _, p := range parts {
		if holders[p] == nil {
			rest = append(rest, p)
		}
	}
	y.begun(rest)
	var done sync.WaitGroup
	for _, m := range distinct(holders) {
		var from []int
		for _, p := range parts {
			if holders[p] == m {
				from = append(from, p)
			}
		}
		done.Go(func() { y.claim(ctx, m, from) })
	}
	done.Wait()
}

func distinct(holders map[int]*ring.Member) (list []*ring.Member) {
	for _, m := range holders {
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// findHolders asks all other members which of the partitions they have. One that does not answer in time counts as having none.
func (y *tenancy) findHolders(ctx context.Context, t *ring.Table, parts []int) map[int]*ring.Member {
	holders := map[int]*ring.Member{}
	var mu sync.Mutex
	y.n.askAll(ctx, t, askTimeout/2, func(ctx context.Context, m *ring.Member) {
		var a HoldingsAnswer
		if err := y.n.opt.Peers.Ask(ctx, m, &HoldingsQuestion{parts}, &a); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range a.Held {
			holders[p] = m
		}
	})
	return holders
}

// askAll calls fn for every other member at the same time, and returns when all have returned.
func (n *Node) askAll(ctx context.Context, t *ring.Table, timeout time.Duration, fn func(context.Context, *ring.Member)) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var done sync.WaitGroup
	for i := range t.Len() {
		if i != t.Self() {
			done.Go(func() { fn(ctx, t.Member(i)) })
		}
	}
	done.Wait()
}

// begun makes partitions this node's own that nobody hands over.
func (y *tenancy) begun(parts []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		if y.parts[p].phase == gaining {
			y.n.opt.Counter.Own(p)
			y.turnLocked(p, own)
		}
	}
}

// claim takes partitions over from the member that has them. What it can't get it begins with what the store has; the other
// takes a partition back by itself, or lets go of it, if it does not hear that it was taken over.
func (y *tenancy) claim(ctx context.Context, m *ring.Member, parts []int) {
	c := claiming{y: y, from: m, open: map[int]*syncer.Handover{}, cursor: map[int]uint64{}}
	for by := time.Now().Add(gainTimeout); ctx.Err() == nil && time.Now().Before(by); {
		for len(c.open) < chunk && len(parts) > 0 {
			c.open[parts[0]], parts = nil, parts[1:]
		}
		if len(c.open) == 0 && len(c.taken) == 0 {
			return
		}
		switch later, err := c.ask(ctx); {
		case err == nil && !later:
			by = time.Now().Add(gainTimeout)
		case err != nil && y.n.table().Find(m.Name) < 0:
			by = time.Now() // it is gone
		default:
			pause(ctx, laterPause)
		}
	}
	for p := range c.open {
		parts = append(parts, p)
	}
	y.begun(parts)
}

// pause waits, unless ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// claiming is partitions on their way from one member to this node.
type claiming struct {
	y      *tenancy
	from   *ring.Member
	open   map[int]*syncer.Handover // what has arrived of each
	cursor map[int]uint64
	taken  []int // taken over, and not confirmed
}

// ask asks for what is open, and says what was taken over. It reports whether the other node takes itself for the owner
// of any of it.
func (c *claiming) ask(ctx context.Context) (later bool, err error) {
	q := ClaimQuestion{By: c.y.n.self(), Taken: c.taken}
	for p := range c.open {
		q.Parts = append(q.Parts, ClaimPart{p, c.cursor[p]})
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var a ClaimAnswer
	if err := c.y.n.opt.Peers.Ask(ctx, c.from, &q, &a); err != nil {
		return false, err
	}
	c.taken = nil
	for i := range a.Pages {
		page := &a.Pages[i]
		if _, asked := c.open[page.Partition]; !asked {
			continue
		}
		switch page.State {
		case ClaimLater:
			later = true
			c.y.leave(page.Partition, c.from)
		case ClaimAgain:
			c.open[page.Partition], c.cursor[page.Partition] = nil, 0
		case ClaimNone:
			delete(c.open, page.Partition)
			c.y.begun([]int{page.Partition})
		case ClaimGiven:
			c.take(page)
		}
	}
	return later, nil
}

// leave has another node decide about a partition until it hands it over.
func (y *tenancy) leave(p int, to *ring.Member) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if s := &y.parts[p]; s.phase == gaining && s.to == nil {
		s.to = to
		y.wakeLocked()
	}
}

// take puts a page to the others of its partition, and takes that over after the last.
func (c *claiming) take(page *ClaimPage) {
	p := page.Partition
	if h := c.open[p]; h == nil || c.cursor[p] == 0 {
		c.open[p] = page.Handover
	} else {
		h.Rounds, h.Keys = append(h.Rounds, page.Handover.Rounds...), append(h.Keys, page.Handover.Keys...)
	}
	c.cursor[p] = page.Next
	if page.Next != 0 {
		return
	}
	h := c.open[p]
	delete(c.open, p)
	if c.y.adopt(h) {
		c.taken = append(c.taken, p)
	}
}

// adopt takes a partition over, unless it is no longer this node's.
func (y *tenancy) adopt(h *syncer.Handover) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	s := &y.parts[h.Partition]
	if y.suspended || s.phase != gaining && s.phase != own && s.phase != losing {
		return false
	}
	y.n.opt.Counter.Adopt(h)
	y.n.handovers.Add(1)
	if s.phase == gaining {
		y.turnLocked(h.Partition, own)
	}
	return true
}

// offer tells a member that this node has partitions of its.
func (y *tenancy) offer(ctx context.Context, m *ring.Member, parts []int) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_ = y.n.opt.Peers.Ask(ctx, m, &OfferQuestion{y.n.self(), parts}, nil) // it is offered again
}

// offered claims partitions that another node has although they are this node's, as after a split.
func (y *tenancy) offered(ctx context.Context, from *ring.Member, parts []int) {
	y.mu.Lock()
	wanted := parts[:0]
	for _, p := range parts {
		if p < 0 || p >= len(y.parts) {
			continue
		}
		s := &y.parts[p]
		if s.phase == given && s.to.Name == from.Name && y.n.opt.Counter.Release(p) == nil {
			y.turnLocked(p, gaining) // it has taken it over, and gives it back
		}
		if s.phase == own || s.phase == gaining {
			wanted = append(wanted, p)
		}
	}
	y.mu.Unlock()
	y.claim(ctx, from, wanted)
}

// holdings returns those of some partitions that this node could hand over.
func (y *tenancy) holdings(parts []int) (held []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		if p < 0 || p >= len(y.parts) {
			continue
		}
		if ph := y.parts[p].phase; ph != foreign && ph != gaining {
			held = append(held, p)
		}
	}
	return held
}

// give answers a claim.
func (y *tenancy) give(ctx context.Context, q *ClaimQuestion) *ClaimAnswer {
	y.release(&q.By, q.Taken)
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

// promise decides whether a partition is given to a member that claims it. A member that is not in the table yet has
// just joined; one that is has to be the owner by this node's table too, or two would take it from each other in turn.
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
	if at := t.Find(to.Name); at >= 0 && t.Owner(p) != at {
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
		y.n.opt.Counter.Disown(page.Partition)
		y.turnLocked(page.Partition, foreign)
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
			y.turnLocked(p, foreign)
		}
	}
}
