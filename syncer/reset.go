package syncer

import (
	"context"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// Forget resets a key: its count is zero in memory at once, and in the store when Forget returns.
// If the store does not answer before ctx is done, the error wraps ErrUnknownOutcome, and the store
// is reset as soon as it answers, unless a Drop comes first.
func (c *Counter) Forget(ctx context.Context, ns, key []byte) error {
	if c.draining.Load() {
		return twotier.ErrClosed
	}
	check := twotier.Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	t.absent = true
	p := t.p
	p.mu.Lock()
	if p.refuses(false) {
		p.mu.Unlock()
		return twotier.ErrNotOwner
	}
	r, e, err := t.entry(c.opt.Now())
	if err != nil {
		p.mu.Unlock()
		return err
	}
	p.forget(r, e, t.hash, t.sp.Ladder)
	ticket := p.dirty.LastTicket
	p.awaited.begin(&t)
	p.mu.Unlock()
	defer p.endReset(&t)
	if _, err := p.commit(ctx, ticket, t.counted()); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// Drop discards this counter's counts of a key that is being reset elsewhere, including unflushed
// ones, and a reset that has not reached the store. The reset elsewhere takes the place of the
// latter, which must not follow it, because it would delete counts made in between. If the reset
// elsewhere fails after all, neither is carried out, and the callers of both have received an
// unknown outcome. Drop leaves a key alone that this counter decides about, unless deciding is set:
// then another counter, or the store itself, decides about it too. It returns once nothing of the
// key is in flight to the store or could still be: it waits for rounds without an answer, which are
// sent again until they have one, and for a Forget that has not returned yet. If that takes longer
// than ctx allows, or another counter receives counts of the key, the error wraps
// ErrUnknownOutcome.
func (c *Counter) Drop(ctx context.Context, ns, key []byte, deciding bool) error {
	check := twotier.Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	p := t.p
	for offered := false; ; {
		p.mu.Lock()
		if offered && p.ownership == notOwned {
			p.mu.Unlock()
			return errOnTheWay
		}
		if p.ownership == owned && !deciding {
			p.mu.Unlock()
			return nil
		}
		offered = p.handoff.offers(&t)
		if !offered && !p.outbox.Has(t.hash, t.ns, t.check.Key) && !p.awaited.has(&t) {
			p.dropKey(&t)
			p.mu.Unlock()
			return nil
		}
		settled := p.settled.wait()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return errOnTheWay
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return errOnTheWay
		}
	}
}

// dropKey drops all synced and pending counts of a key, and a pending reset of it.
func (g *guarded) dropKey(t *target) {
	at := g.keys.Find(t.hash, t.ns, t.check.Key)
	if at == 0 {
		return
	}
	e := g.keys.Entry(at)
	g.forget(at, e, t.hash, t.sp.Ladder)
	e.Drop(keys.FlagReset)
	e.Set(keys.FlagCold)
}

// forget empties an entry and makes the next round delete the key before anything else. Counts of
// it in the answer to a round in flight are ignored.
func (g *guarded) forget(r arena.Ref, e keys.Entry, hash uint32, l *leaparray.Ladder) {
	g.loads.Recall(rounds.LoadName(e.Name()))
	for _, unacked := range g.outbox.All() {
		unacked.Forget(r, hash, e)
	}
	g.restoration.forget(r, hash, e)
	g.erase(r, e, l)
	e.Set(keys.FlagReset)
	g.enlist(r, e)
}

// awaitedResets is how many callers of Forget wait for the reset of a key, by loadName. Forget
// returns success once its ticket is acknowledged, so the reset must not be given up meanwhile. It
// is guarded by the partition's lock.
type awaitedResets map[string]int

func (a *awaitedResets) begin(t *target) {
	if *a == nil {
		*a = awaitedResets{}
	}
	(*a)[rounds.LoadName(t.ns, t.check.Key)]++
}

func (a awaitedResets) has(t *target) bool {
	return len(a) > 0 && a[rounds.LoadName(t.ns, t.check.Key)] > 0
}

func (a awaitedResets) end(t *target) {
	name := rounds.LoadName(t.ns, t.check.Key)
	if a[name]--; a[name] == 0 {
		delete(a, name)
	}
}

// endReset records that a caller of Forget waits no more. A Drop that waits for it looks again.
func (p *partition) endReset(t *target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited.end(t)
	p.settled.wake()
}
