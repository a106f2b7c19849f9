package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"twotier/internal/modes"
	"twotier/internal/retry"
	"twotier/internal/rpc"
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
	// maxHolders is how often a partition that changes hands meanwhile is looked for.
	maxHolders = 5
	// laterPause is the wait before asking again for a partition that another node takes for its own.
	laterPause = 50 * time.Millisecond
)

// gain takes over partitions that the table gives to this node: from who has them, or else with what the store has.
func (y *tenancy) gain(ctx context.Context, t *ring.Table, parts []int) {
	for range maxHolders {
		holders := y.findHolders(ctx, t, parts)
		var rest []int
		for _, p := range parts {
			if holders[p] == nil {
				rest = append(rest, p)
			}
		}
		y.begun(rest)
		if parts = y.claimAll(ctx, holders); len(parts) == 0 {
			return
		}
		t = y.n.table()
	}
	y.begun(parts)
}

// claimAll takes partitions over from the members that have them. It returns those that have gone elsewhere meanwhile.
func (y *tenancy) claimAll(ctx context.Context, holders map[int]*ring.Member) (gone []int) {
	var mu sync.Mutex
	var done sync.WaitGroup
	for _, m := range distinct(holders) {
		var from []int
		for p, holder := range holders {
			if holder == m {
				from = append(from, p)
			}
		}
		slices.Sort(from)
		done.Go(func() {
			lost := y.claim(ctx, m, from)
			mu.Lock()
			defer mu.Unlock()
			gone = append(gone, lost...)
		})
	}
	done.Wait()
	return gone
}

func distinct(holders map[int]*ring.Member) (list []*ring.Member) {
	for _, m := range holders {
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// findHolders asks all other members which of the partitions they have. One that can't be reached, or does not say for as long as requests
// may wait, counts as having none.
func (y *tenancy) findHolders(ctx context.Context, t *ring.Table, parts []int) map[int]*ring.Member {
	holders := map[int]*ring.Member{}
	var mu sync.Mutex
	rpc.Broadcast(ctx, t, modes.PreparedTime+gainTimeout, func(ctx context.Context, m *ring.Member) {
		held := y.holdingsOf(ctx, m, parts)
		mu.Lock()
		defer mu.Unlock()
		for _, p := range held {
			holders[p] = m
		}
	})
	return holders
}

// holdingsOf asks a member which of the partitions it has, again while it is slow, or is changing its mode.
func (y *tenancy) holdingsOf(ctx context.Context, m *ring.Member, parts []int) []int {
	for by := time.Now().Add(gainTimeout); time.Now().Before(by); {
		var a HoldingsAnswer
		err := y.askFor(ctx, m, &HoldingsQuestion{parts}, &a)
		switch {
		case err == nil && !a.Later:
			return a.Held
		case errors.Is(err, rpc.ErrUnreachable), y.n.table().Find(m.Name) < 0, ctx.Err() != nil, y.isSuspended():
			return nil
		case err == nil: // it is there, and the change ends sooner or later
			by = time.Now().Add(gainTimeout)
		}
		retry.Pause(ctx, laterPause)
	}
	return nil
}

// askFor is Peers.Ask with half of askTimeout.
func (y *tenancy) askFor(ctx context.Context, m *ring.Member, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	return y.n.opt.Peers.Ask(ctx, m, question, answer)
}

func (y *tenancy) isSuspended() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.suspended
}

// begun makes partitions this node's own that nobody hands over.
func (y *tenancy) begun(parts []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		y.claimed[p] = false
		if y.parts[p].phase == gaining {
			y.n.opt.Counter.Own(p)
			y.moves.Begun++
			y.turnLocked(p, own)
		}
	}
}

// settledWith notes that nothing is left to be said to another node about partitions.
func (y *tenancy) settledWith(parts []int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		y.claimed[p] = false
	}
}

// claim takes partitions over from the member that has them, which goes on deciding until its table gives them to this node too. What
// it can't get because the other is gone it begins with what the store has. It returns what the other does not have any more.
func (y *tenancy) claim(ctx context.Context, m *ring.Member, parts []int) (gone []int) {
	c := claiming{y: y, from: m, open: map[int]*syncer.Handover{}, cursor: map[int]uint64{}}
	y.leave(parts, m)
	for by := time.Now().Add(gainTimeout); ctx.Err() == nil && time.Now().Before(by); {
		for len(c.open) < chunk && len(parts) > 0 {
			c.open[parts[0]], parts = nil, parts[1:]
		}
		c.drop()
		if len(c.open)+len(c.taken)+len(c.refused) == 0 {
			if len(parts) == 0 {
				return c.gone
			}
			continue
		}
		later, err := c.ask(ctx)
		if err == nil {
			by = time.Now().Add(gainTimeout)
		} else if y.n.table().Find(m.Name) < 0 {
			by = time.Now() // it is gone
		}
		if later || err != nil {
			retry.Pause(ctx, laterPause)
		}
	}
	y.settledWith(append(c.taken, c.refused...))
	for p := range c.open {
		parts = append(parts, p)
	}
	if ctx.Err() == nil {
		y.begun(parts)
	}
	return c.gone
}

// claiming is partitions on their way from one member to this node.
type claiming struct {
	y      *tenancy
	from   *ring.Member
	open   map[int]*syncer.Handover // what has arrived of each
	cursor map[int]uint64
	// What the other node has not been told yet: what was taken over, and what is not this node's any more.
	taken, refused []int
	gone           []int // what the other node has not
}

// drop gives up what is not this node's any more.
func (c *claiming) drop() {
	for p := range c.open {
		if !c.y.wants(p) {
			delete(c.open, p)
			c.refused = append(c.refused, p)
		}
	}
}

// wants reports whether a partition is this node's, or was until a moment ago.
func (y *tenancy) wants(p int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.wantsLocked(p)
}

func (y *tenancy) wantsLocked(p int) bool {
	ph := y.parts[p].phase
	return !y.suspended && (ph == gaining || ph == own || ph == losing)
}

// ask asks for what is open, and says what was taken over. It reports whether the other node takes itself for the owner
// of any of it.
func (c *claiming) ask(ctx context.Context) (later bool, err error) {
	q := ClaimQuestion{By: c.y.n.self(), Taken: c.taken, Refused: c.refused}
	for p := range c.open {
		q.Parts = append(q.Parts, ClaimPart{p, c.cursor[p]})
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var a ClaimAnswer
	if err := c.y.n.opt.Peers.Ask(ctx, c.from, &q, &a); err != nil {
		return false, err
	}
	c.y.settledWith(append(c.taken, c.refused...))
	c.taken, c.refused = nil, nil
	for i := range a.Pages {
		page := &a.Pages[i]
		if _, asked := c.open[page.Partition]; !asked {
			continue
		}
		switch page.State {
		case ClaimLater:
			later = true
		case ClaimAgain:
			c.open[page.Partition], c.cursor[page.Partition] = nil, 0
		case ClaimNone:
			delete(c.open, page.Partition)
			c.gone = append(c.gone, page.Partition)
		case ClaimGiven:
			c.take(page)
		}
	}
	return later, nil
}

// leave has another node decide about partitions until it hands them over.
func (y *tenancy) leave(parts []int, to *ring.Member) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range parts {
		if s := &y.parts[p]; s.phase == gaining {
			s.to = to
		}
	}
	y.wakeLocked()
}

// expect has those who ask for a partition wait for it: the other node decides no longer.
func (y *tenancy) expect(p int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if s := &y.parts[p]; s.phase == gaining {
		s.to = nil
	}
}

// take puts a page to the others of its partition, and takes that over after the last.
func (c *claiming) take(page *ClaimPage) {
	p := page.Partition
	c.y.expect(p)
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
	} else {
		c.refused = append(c.refused, p)
	}
}

// adopt takes a partition over, unless it is no longer this node's.
func (y *tenancy) adopt(h *syncer.Handover) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.wantsLocked(h.Partition) {
		return false
	}
	y.n.opt.Counter.Adopt(h)
	y.moves.Taken++
	if y.parts[h.Partition].phase == gaining {
		y.turnLocked(h.Partition, own)
	}
	return true
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
			y.moves.Given++
			y.turnLocked(p, foreign) // it has taken it over, and gives it back: what is gained is asked for
			y.poke()
		}
		if !y.claimed[p] && s.phase == own {
			y.claimed[p] = true
			wanted = append(wanted, p)
		}
	}
	y.mu.Unlock()
	y.settledWith(y.claim(ctx, from, wanted))
}
