package simtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// before returns a time a moment ago.
func (c *client) before() int64 {
	return time.Now().Add(-time.Duration(c.rnd.IntN(40)) * time.Second).UnixMilli()
}

// pace acquires a key with limits over windows that end while the schedule runs, each read from
// another level.
func (c *client) pace() twotier.Op {
	key := c.paced()
	return twotier.Op{Kind: twotier.Acquire, Ack: c.ack(),
		Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limitsOf(key)}}}
}

// overdraw acquires one or two keys, and counts even if refused.
func (c *client) overdraw() twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire, Ack: c.ack(), CountDenied: true}
	for i := range 1 + c.rnd.IntN(2) {
		op.Checks = append(op.Checks, twotier.Check{Key: fmt.Append(nil, "overdrawn", i), N: 1,
			Limits: []twotier.Limit{{Window: dayMS, Max: 30}}})
	}
	return op
}

// crowd acquires large amounts of a key that all clients use, alone or along with another key. Its
// limits are large enough for its owner to lend a part of the rest.
func (c *client) crowd() []twotier.Op {
	if c.w.plan.exact && c.outside == nil && c.rnd.IntN(3) == 0 {
		return c.refunds()
	}
	ops := make([]twotier.Op, 1+c.rnd.IntN(4))
	for i := range ops {
		ops[i] = twotier.Op{Kind: twotier.Acquire, Ack: c.ack(), Checks: []twotier.Check{
			{Key: []byte("crowded"), N: 1 + c.rnd.Int64N(20), Limits: limitsOf("crowded")}}}
		if c.rnd.IntN(2) == 0 {
			ops[i].Checks = append(ops[i].Checks, c.acquire(1).Checks...)
		}
	}
	return ops
}

// refunds counts a key that only this client uses, so often that nodes borrow it, or takes back all
// of its acknowledged counts, wherever they were counted.
func (c *client) refunds() []twotier.Op {
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{
		{Key: fmt.Appendf(nil, "refunded%d", c.number), N: 1 + c.rnd.Int64N(4)}}}
	if c.unspent > 0 && c.rnd.IntN(3) == 0 {
		op.Checks[0].N, c.unspent = -c.unspent, 0
		return []twotier.Op{op}
	}
	return slices.Repeat([]twotier.Op{op}, 16+c.rnd.IntN(32))
}

// clear counts a key that only this client uses, or resets it.
func (c *client) clear(p *proc) {
	key := fmt.Sprint("cleared", c.number)
	if c.rnd.IntN(3) > 0 {
		c.do(p, twotier.Op{Kind: twotier.Add, Ack: c.ack(),
			Checks: []twotier.Check{{Key: []byte(key), N: 1 + c.rnd.Int64N(4)}}})
		return
	}
	c.w.ledger.of(key, func(*account) {})
	ctx, cancel := c.context()
	defer cancel()
	defer c.w.enter(p)()
	asked := time.Now()
	err := p.node.Reset(ctx, nil, []byte(key))
	c.w.journal.note("client: %s reset at %s: %v", key, p.id, err)
	switch {
	case err == nil && !p.dead.Load():
		c.w.ledger.reset(key, asked, c.w.awayFrom(p, key), c.w.plan.restoresOthers() ||
			c.w.plan.parts() || c.w.plan.kind.is(crashes, restarts) || c.w.lostSince(asked))
	case errors.Is(err, twotier.ErrUnavailable) && !p.dead.Load() && !unknown(p, err):
	default:
		c.w.ledger.mayBeReset(key)
	}
	if err != nil {
		c.w.refused.Add(1)
		c.w.acceptable(p, err)
	}
}

// lostSince reports whether Redis has lost data since then, and so may have gone back to an earlier
// state.
func (w *world) lostSince(then time.Time) bool {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	return slices.ContainsFunc(w.lossy, func(at time.Time) bool { return !at.Before(then) })
}

// awayFrom returns how much of a key is in processes that a node does not see as members: it can't
// make them forget the key.
func (w *world) awayFrom(p *proc, key string) (sum int64) {
	for _, q := range w.living() {
		if p.ring.Table().Find(q.ring.Name()) >= 0 {
			continue
		}
		add := func(_, k []byte, n int64) {
			if string(k) == key {
				sum += max(0, n)
			}
		}
		q.counter.EachUnflushed(add)
		q.counter.EachSynced(add)
	}
	return sum
}

// series reads the buckets of a key. Their sum must not exceed the sum of all attempts.
func (c *client) series(p *proc) {
	key := c.free()
	n, err := p.sum(key)
	if err != nil || p.dead.Load() {
		return
	}
	a := c.w.ledger.copy(key)
	if most := a.most() + c.w.inFlight(); n > most && c.w.plan.exact {
		c.w.t.Errorf("%s: node %s has a series of %d, at most %d were attempted", key, p.id,
			n, most)
	}
}

// sum returns the sum of a node's series of a key.
func (p *proc) sum(key string) (sum int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, points, err := p.node.Series(ctx, nil, []byte(key), hourMS)
	for _, point := range points {
		sum += point.Count
	}
	return sum, err
}
