package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
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

// contest changes the mode back and forth while clients compete for keys, each of which admits one
// of them. Redis is slow meanwhile, and now and then one node is: requests that begin before a
// change end after it.
func (w *world) contest() {
	most := w.upTo(800 * time.Millisecond)
	for _, p := range w.alive() {
		defer p.takes.slow(most)()
	}
	var running sync.WaitGroup
	defer running.Wait()
	if lags := w.cast().lags(); lags != nil && w.rnd.IntN(2) == 0 {
		running.Go(lags)
	}
	for range 2 + w.rnd.IntN(2) {
		w.compete(&running)
		w.rest(500)
		if p := w.pick(w.rnd); p != nil {
			w.switchAt(p)
		}
	}
}

// switchAmidHandovers changes the mode in vain while partitions are on their way to a process that
// joins: Redis is slow, so that a handover takes a while, and then becomes unreachable for all
// processes except the joining one, before it has the clients' latest acquires. The clients acquire
// the same keys once more after the change has failed.
func (w *world) switchAmidHandovers() {
	list := w.alive()
	if len(list) == hosts {
		w.switchInVain()
		return
	}
	most := 200*time.Millisecond + w.upTo(1200*time.Millisecond)
	for _, p := range list {
		defer p.takes.slow(most)()
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(w.join)
	w.rest(300)
	again := w.compete(&running)
	w.until(3*time.Second, func() bool { return list[0].seesOwners(len(list) + 1) })
	w.rest(400)
	length := 6*time.Second + w.upTo(2*time.Second)
	running.Go(func() { w.takeRedis(list, (*faultstore.Store).SetDown, "loses Redis", length) })
	w.switchAt(list[w.rnd.IntN(len(list))])
	again()
}

// seesOwners reports whether at least n members may own partitions in the view of a process.
func (p *proc) seesOwners(n int) bool {
	t := p.ring.Table()
	for i := range t.Len() {
		if m := t.Member(i); !m.Starting && !m.Draining {
			n--
		}
	}
	return n <= 0
}

// contested is how many keys clients compete for at a time, rivals how many clients want each.
const contested, rivals = 30, 4

// compete makes clients acquire new keys, alone or three at a time. The returned function makes
// other clients acquire the same keys.
func (w *world) compete(running *sync.WaitGroup) (again func()) {
	w.spent++
	ask := func(generation int) {
		for i := range contested {
			wait := w.upTo(500 * time.Millisecond)
			for k := range rivals {
				c := &client{w: w, number: 210 + k,
					rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), uint64(k)))}
				wait, op := wait+c.upTo(300*time.Millisecond), c.want(generation, i)
				running.Go(func() {
					time.Sleep(wait)
					if p := w.pick(c.rnd); p != nil {
						c.do(p, op)
					}
				})
			}
		}
	}
	generation := w.spent
	ask(generation)
	return func() { ask(generation) }
}

// want acquires one of the contested keys of a generation, or three.
func (c *client) want(generation, first int) twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire, Ack: c.ack()}
	for i := range 1 + 2*c.rnd.IntN(2) {
		key := fmt.Sprintf("spent%d.%d", generation, (first+i)%contested)
		op.Checks = append(op.Checks,
			twotier.Check{Key: []byte(key), N: 1, Limits: limitsOf(key)})
	}
	return op
}
