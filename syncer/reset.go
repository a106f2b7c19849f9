package syncer

import (
	"context"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// ResetKey resets a key: its count is zero in memory at once, and in the store when ResetKey
// returns. If the store does not answer before ctx is done, the error wraps ErrUnknownOutcome, and
// the store is reset as soon as it answers, unless a DropKey comes first.
func (c *Counter) ResetKey(ctx context.Context, ns, key []byte) error {
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
	r, e, err := t.ensureEntry(c.opt.Now())
	if err != nil {
		p.mu.Unlock()
		return err
	}
	p.resetEntry(r, e, t.hash)
	ticket := p.dirty.LastTicket
	p.resets[t.name()]++
	p.mu.Unlock()
	defer p.endReset(t.name())
	if _, err := p.awaitAck(ctx, ticket, t.countedKey()); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// DropKey discards this counter's counts of a key that is being reset elsewhere, including
// unflushed ones, and a reset that has not reached the store. The reset elsewhere takes the place
// of the latter, which must not follow it, because it would delete counts made in between. If the
// reset elsewhere fails after all, neither is carried out, and the callers of both have received an
// unknown outcome. Drop leaves a key alone that this counter decides about, unless deciding is set:
// then another counter, or the store itself, decides about it too. It returns once nothing of the
// key is in flight to the store or could still be: it waits for rounds without an answer, which are
// sent again until they have one, and for a ResetKey that has not returned yet. If that takes
// longer than ctx allows, or another counter receives counts of the key, the error wraps
// ErrUnknownOutcome.
func (c *Counter) DropKey(ctx context.Context, ns, key []byte, deciding bool) error {
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
		offered = p.ownership.isSealed() && rounds.AnyHasKey(p.handoff.rounds, t.hash, t.ns, key)
		if !offered && !p.outbox.HasKey(t.hash, t.ns, t.check.Key) && p.resets[t.name()] == 0 {
			p.dropKey(t.hash, t.ns, key)
			p.mu.Unlock()
			return nil
		}
		settled := p.settled.nextNews()
		over := p.phase == stopped
		p.mu.Unlock()
		if over {
			return errOnTheWay
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return errOnTheWay
		}
	}
}
