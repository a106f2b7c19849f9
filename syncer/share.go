package syncer

import (
	"context"
	"fmt"
	"time"
)

// Share has several counters count a key at the same time, because it is asked for more often than one of them can answer, or ends
// that. Every flush of a shared key brings along what the others have flushed, and a decision about it is never based on
// news older than two flush intervals: for as long, what others admit is not seen.
func (c *Counter) Share(ns, key []byte, on bool) error {
	check := Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	p := t.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if !on {
		if r := p.find(t.hash, t.ns, key); r != 0 {
			p.arena.entry(r).drop(flagShared)
		}
		return nil
	}
	_, e, err := c.entry(&t, c.opt.Now())
	if err == nil {
		e.set(flagShared)
	}
	return err
}

// StaleAfter is how old the news may be that a decision in place of, or beside, another counter is based on.
func (c *Counter) StaleAfter() time.Duration { return 2 * c.opt.FlushInterval }

// recent reports whether the store has answered for the partition within the time that others' counts may go unseen.
func (p *partition) recent() bool {
	return !p.verified.IsZero() && time.Since(p.verified) <= p.lane.c.StaleAfter()
}

// shared reports whether the target's key is.
func (t *target) shared() bool {
	r := t.p.find(t.hash, t.ns, t.check.Key)
	return r != 0 && t.p.arena.entry(r).has(flagShared)
}

// source says where an answer about an entry comes from while the store can be reached.
func (p *partition) source(e entry) Source {
	if p.mode == modeForeign && !e.has(flagShared) {
		return SourceFallback
	}
	return SourceMemory
}

// Drop forgets what this counter counted of a key that another one decides about, and the store has not: the key is being
// reset. It returns once nothing of it is on its way to the store.
func (c *Counter) Drop(ctx context.Context, ns, key []byte) error {
	check := Check{NS: ns, Key: key}
	var t target
	c.locate(&t, &check)
	p := t.p
	for {
		p.mu.Lock()
		at := p.find(t.hash, t.ns, key)
		if at == 0 || p.mode == modeOwn {
			p.mu.Unlock()
			return nil
		}
		e := p.arena.entry(at)
		if !p.sent || !e.has(flagBusy) {
			shared := e.has(flagShared)
			p.forget(at, e, t.hash, t.sp.ladder)
			e.drop(flagReset)
			e.set(flagCold)
			if shared {
				e.set(flagShared)
			}
			p.mu.Unlock()
			return nil
		}
		settled := p.wait()
		p.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("%w: counts of the key are on their way", ErrUnknownOutcome)
		}
	}
}
