package ownership

import (
	"context"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// claimWindow is the number of partitions claimed at a time. Operations on these wait while they
// move.
const claimWindow = 16

// claim is a set of partitions moving from one member to this node.
type claim struct {
	o      *Partitions
	from   *ring.Member
	open   map[int]*syncer.Handoff // the pages received of each partition
	cursor map[int]uint64
	// taken and refused are not reported to the other node yet: partitions that this node has taken
	// over, and partitions that it no longer wants.
	taken, refused []int
	gone           []int // partitions that the last reply reported as not held
}

// claimFrom takes over partitions from the member that holds them. That member keeps deciding until
// its own table assigns them to this node too. If it is gone before it can hand them over, they
// start from the store. Partitions that it no longer holds are passed to gone at once, however long
// the rest takes: until their holder is found, operations on them must not be sent to that member.
func (o *Partitions) claimFrom(
	ctx context.Context, m *ring.Member, parts []int, gone func(parts []int),
) {
	c := claim{o: o, from: m, open: map[int]*syncer.Handoff{}, cursor: map[int]uint64{}}
	o.deferTo(m, parts)
	for by := time.Now().Add(WaitTimeout); ctx.Err() == nil && time.Now().Before(by); {
		for len(c.open) < claimWindow && len(parts) > 0 {
			c.open[parts[0]], parts = nil, parts[1:]
		}
		c.dropUnowned()
		if len(c.open)+len(c.taken)+len(c.refused) == 0 {
			if len(parts) == 0 {
				return
			}
			continue
		}
		later, err := c.requestPages(ctx)
		if len(c.gone) > 0 {
			gone(c.gone)
			c.gone = nil
		}
		if err == nil {
			by = time.Now().Add(WaitTimeout)
		} else if o.opt.Table().Find(m.Name) < 0 {
			by = time.Now() // it is gone
		}
		if later || err != nil {
			retry.Pause(ctx, laterPause)
		}
	}
	o.endClaims(append(c.taken, c.refused...))
	for p := range c.open {
		parts = append(parts, p)
	}
	o.beginFromStore(ctx, parts) // what has not arrived
}

// dropUnowned gives up partitions that this node no longer owns.
func (c *claim) dropUnowned() {
	for p := range c.open {
		if !c.o.stillWants(p) {
			delete(c.open, p)
			c.refused = append(c.refused, p)
		}
	}
}

// requestPages requests the missing pages, and reports taken and refused partitions. later is set
// if the other node considers itself the owner of any of the partitions.
func (c *claim) requestPages(ctx context.Context) (later bool, err error) {
	q := ClaimRequest{By: c.o.opt.Self(), Taken: c.taken, Refused: c.refused}
	for p := range c.open {
		q.Parts = append(q.Parts, ClaimPart{p, c.cursor[p]})
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var a ClaimResponse
	if err := c.o.opt.Peers.Ask(ctx, c.from, &q, &a); err != nil {
		return false, err
	}
	c.o.endClaims(append(c.taken, c.refused...))
	c.taken, c.refused = nil, nil
	for i := range a.Pages {
		page := &a.Pages[i]
		if _, asked := c.open[page.Partition]; !asked {
			continue
		}
		switch page.State {
		case Later:
			later = true
		case Again:
			c.open[page.Partition], c.cursor[page.Partition] = nil, 0
		case NotHeld:
			delete(c.open, page.Partition)
			c.o.stopDeferring(page.Partition)
			c.gone = append(c.gone, page.Partition)
		case Given:
			c.addPage(ctx, page)
		}
	}
	return later, nil
}

// addPage adds a page to its partition, and takes the partition over after the last page.
func (c *claim) addPage(ctx context.Context, page *ClaimPage) {
	p := page.Partition
	c.o.stopDeferring(p)
	if h := c.open[p]; h == nil || c.cursor[p] == 0 {
		c.open[p] = page.Handoff
	} else {
		h.Rounds = append(h.Rounds, page.Handoff.Rounds...)
		h.Keys = append(h.Keys, page.Handoff.Keys...)
	}
	c.cursor[p] = page.Next
	if page.Next != 0 {
		return
	}
	h := c.open[p]
	delete(c.open, p)
	if c.o.importHandoff(ctx, h, c.from, page.Gift) {
		c.taken = append(c.taken, p)
	} else {
		c.refused = append(c.refused, p)
	}
}

// stillWants reports whether this node still wants a partition: it owns it, or owned it a moment
// ago.
func (o *Partitions) stillWants(p int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stillWantsLocked(p)
}

func (o *Partitions) stillWantsLocked(p int) bool {
	ph := o.parts[p].phase
	return !o.suspended && (ph == incoming || ph == own || ph == outgoing)
}

// deferTo names another node as the decider of partitions until it hands them over.
func (o *Partitions) deferTo(m *ring.Member, parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		if s := &o.parts[p]; s.phase == incoming {
			s.to = m
		}
	}
	o.wakeLocked()
}

// stopDeferring makes operations on a partition wait until it arrives or its holder is known,
// because the other node no longer decides.
func (o *Partitions) stopDeferring(p int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := &o.parts[p]; s.phase == incoming {
		s.to = nil
	}
}

// importHandoff takes over a partition, and reports whether this node still wants it. It does not
// if ctx is done.
func (o *Partitions) importHandoff(
	ctx context.Context, h *syncer.Handoff, from *ring.Member, gift uint64,
) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil || !o.stillWantsLocked(h.Partition) {
		return false
	}
	o.opt.Counter.ImportHandoff(h)
	o.moves.Taken++
	s := &o.parts[h.Partition]
	if s.gift, s.giver = gift, from.Name; s.phase == incoming {
		o.enterLocked(h.Partition, own)
	}
	return true
}
