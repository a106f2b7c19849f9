package ring

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// runRebuild makes a new table whenever the members change.
func (r *Ring) runRebuild(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.views.signal:
			if t := r.rebuild(); t != nil && r.opt.OnChange != nil {
				r.opt.OnChange(t)
			}
		}
	}
}

// rebuild makes the table of the current members. It returns nil if nothing changed. It holds a
// lock because, of two concurrent rebuilds, the one that saw the members first must not be the last
// to store a table.
func (r *Ring) rebuild() *Table {
	r.tableMu.Lock()
	defer r.tableMu.Unlock()
	members := r.views.snapshot()
	old := r.table.Load()
	t, err := newTable(members, r.opt.Name, r.opt.Agreement.Partitions, r.opt.Agreement.Seed, old,
		r.opt.Placements)
	if err != nil {
		r.opt.Logger.Error("can't compute a new table of owners: keeping the old one", "error", err)
		return nil
	}
	if sameContent(t, old) {
		return nil
	}
	r.table.Store(t)
	r.logChange(old, t)
	return t
}

// sameContent reports whether two tables have equal content.
func sameContent(a, b *Table) bool {
	if a.version != b.version || len(a.members) != len(b.members) {
		return false
	}
	for i := range a.members {
		if a.members[i] != b.members[i] {
			return false
		}
	}
	return true
}

// logChange logs the members that joined, left, or are about to leave.
func (r *Ring) logChange(old, t *Table) {
	for i := range t.members {
		m := &t.members[i]
		switch at := old.Find(m.Name); {
		case m.Name == r.opt.Name:
			if at >= 0 && m.Draining && !old.members[at].Draining {
				r.opt.Logger.Info("draining")
			}
		case at < 0:
			r.opt.Logger.Info("member joined", "member", m.ID, "address", m.Address, "members",
				t.Len())
		case m.Draining && !old.members[at].Draining:
			r.opt.Logger.Info("member is draining", "member", m.ID)
		}
	}
	for i := range old.members {
		if m := &old.members[i]; m.Name != r.opt.Name && t.Find(m.Name) < 0 {
			r.opt.Logger.Info("member gone", "member", m.ID, "address", m.Address, "members",
				t.Len())
		}
	}
	if at := old.Self(); at >= 0 && t.Self() < 0 && !old.members[at].Starting {
		r.opt.Logger.Error("another process has this node's ID and is younger: this one owns "+
			"nothing any more", "node", r.opt.ID)
	}
}

// runRejoin looks for missing members for as long as the node lives, and contacts strangers that
// gossip has not reported. memberlist itself gives up on dead nodes after half a minute, which
// would keep two halves of a split cluster apart forever.
func (r *Ring) runRejoin(ctx context.Context) {
	wait := r.opt.RejoinInterval / soonest
	timer := time.NewTimer(jitter(wait))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			missing := r.views.missingAddresses(ctx, r.seeds())
			results := r.exchangeWithAll(ctx, missing)
			for range missing {
				<-results // unreachable members are tried again
			}
			wait = min(2*wait, r.opt.RejoinInterval)
			timer.Reset(jitter(wait))
		case s := <-r.views.strangers:
			r.meetStranger(ctx, s)
		}
	}
}

// seeds returns the addresses to look for, apart from those of lost members.
func (r *Ring) seeds() []string {
	if r.opt.Listed == nil {
		return r.opt.Join
	}
	return slices.Concat(r.opt.Join, r.opt.Listed())
}

// soonest is how much more often a new node looks for missing members at first: nodes that start at
// the same time each believe they are the first.
const soonest = 32

// jitter returns d plus or minus up to a quarter, so that nodes don't retry in lockstep.
func jitter(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }

// exchangeWithAll exchanges state with the members at these addresses, several at a time, and sends
// the result of each.
func (r *Ring) exchangeWithAll(ctx context.Context, addresses []string) <-chan error {
	return each(ctx, addresses, 0, r.exchange)
}

func (r *Ring) exchange(address string) error {
	_, err := r.list.Join([]string{address})
	return err
}

// each calls fn for each address, several at a time, with at least apart between the starts, and
// sends the results. Addresses that have not had their turn when ctx is done are skipped: a silent
// one takes some seconds.
func each(
	ctx context.Context, addresses []string, apart time.Duration, fn func(address string) error,
) <-chan error {
	results := make(chan error, len(addresses))
	slots := make(chan struct{}, reachAtOnce)
	for i, address := range addresses {
		go func() {
			if wait := time.Duration(i) * apart; wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				results <- ctx.Err()
				return
			}
			err := fn(address)
			<-slots
			results <- err
		}()
	}
	return results
}

// reachAtOnce is how many members are contacted concurrently.
const reachAtOnce = 32
