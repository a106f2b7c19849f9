package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"twotier/internal/node"
	"twotier/syncer"
)

// client asks random nodes for random things until it is told to stop.
type client struct {
	w   *world
	rnd *rand.Rand
}

func (c *client) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(c.rnd.Int64N(int64(2 * c.w.plan.pause)))):
		}
		p := c.w.pick(c.rnd)
		if p == nil {
			continue
		}
		switch n := c.rnd.IntN(100); {
		case n < 35:
			c.add(p)
		case n < 65:
			c.acquire(p, 1)
		case n < 80:
			c.acquire(p, 2+c.rnd.IntN(2))
		case n < 90:
			c.batch(p)
		default:
			c.count(p)
		}
	}
}

const (
	freeKeys    = 8
	limitedKeys = 6
	dayMS       = 86_400_000
)

// free is a key without a limit: one of a few, or one that nobody ever uses again, which shows what became of a single count.
func (c *client) free() string {
	if c.rnd.IntN(3) == 0 {
		return fmt.Sprint("once", c.w.once.Add(1))
	}
	return fmt.Sprint("free", c.rnd.IntN(freeKeys))
}

func (c *client) limited() string { return fmt.Sprint("limited", c.rnd.IntN(limitedKeys)) }

func (c *client) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}

func (c *client) ack() syncer.Ack {
	if c.rnd.IntN(5) == 0 {
		return syncer.AckStore
	}
	return syncer.AckMemory
}

// told notes how an operation ended. counted says whether it counts if it was carried out.
func (c *client) told(p *proc, op *node.Op, err error, counted bool, source node.Source) {
	if p.dead.Load() && err == nil {
		err = syncer.ErrUnknownOutcome // nobody hears the dead
	}
	for i := range op.Checks {
		key, n := string(op.Checks[i].Key), op.Checks[i].N
		c.w.journal.note("client: %s %+d at %s: counted %v (%s), %v", key, n, p.id, counted, source, err)
		switch {
		case err == nil && counted:
			c.w.ledger.acknowledge(key, n, op.Kind == syncer.Acquire)
		case err == nil:
		case errors.Is(err, syncer.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syncer.ErrClosed) && p.dead.Load():
			c.w.ledger.doubt(key, n)
		}
	}
	switch source {
	case syncer.SourceShared:
		c.w.shared.Add(1)
	case syncer.SourceNear:
		c.w.near.Add(1)
	}
	if err == nil && source == syncer.SourceFallback && c.w.plan.exact {
		c.w.t.Errorf("%s: node %s stood in for an owner that could be reached", op.Checks[0].Key, p.id)
	}
	if err != nil {
		c.w.refused.Add(1)
		c.w.acceptable(p, err)
	}
}

func (c *client) add(p *proc) {
	ctx, cancel := c.context()
	defer cancel()
	op := node.Op{Kind: node.Add, Ack: c.ack(), Checks: []node.Check{{Key: []byte(c.free()), N: 1 + c.rnd.Int64N(4)}}}
	done := c.w.enter(p)
	defer done()
	var res node.Result
	err := p.node.Do(ctx, &op, &res)
	c.told(p, &op, err, true, res.Source)
}

// acquire takes from several limited keys at once.
func (c *client) acquire(p *proc, keys int) {
	ctx, cancel := c.context()
	defer cancel()
	op := node.Op{Kind: node.Acquire, Ack: c.ack()}
	used := map[string]bool{}
	for range keys {
		key := c.limited()
		if used[key] {
			continue
		}
		used[key] = true
		op.Checks = append(op.Checks, node.Check{Key: []byte(key), N: 1, Limits: []node.Limit{{Window: dayMS, Max: c.w.limitOf(key)}}})
	}
	done := c.w.enter(p)
	defer done()
	var res node.Result
	err := p.node.Do(ctx, &op, &res)
	c.told(p, &op, err, res.Allowed, res.Source)
	if err == nil && !p.dead.Load() {
		c.judge(p, &op, &res)
	}
}

// judge holds a decision against what is known: the figures are those of the checks, and a refusal has a reason.
func (c *client) judge(p *proc, op *node.Op, res *node.Result) {
	if len(res.Checks) != len(op.Checks) {
		c.w.t.Errorf("%s: %d checks, %d answers", p.id, len(op.Checks), len(res.Checks))
		return
	}
	refused := false
	for i := range res.Checks {
		refused = refused || res.Checks[i].Refused
	}
	if refused == res.Allowed {
		c.w.t.Errorf("%s: allowed %v, but %+v", p.id, res.Allowed, res.Checks)
	}
}

// batch carries out several operations at once.
func (c *client) batch(p *proc) {
	ctx, cancel := c.context()
	defer cancel()
	ops := make([]node.Op, 2+c.rnd.IntN(10))
	for i := range ops {
		ops[i] = node.Op{Kind: node.Add, Ack: c.ack(), Checks: []node.Check{{Key: []byte(c.free()), N: 1}}}
		if c.rnd.IntN(3) == 0 {
			key := c.limited()
			ops[i] = node.Op{Kind: node.Acquire, Checks: []node.Check{{Key: []byte(key), N: 1, Limits: []node.Limit{{Window: dayMS, Max: c.w.limitOf(key)}}}}}
			if other := c.limited(); other != key && c.rnd.IntN(2) == 0 {
				ops[i].Checks = append(ops[i].Checks, node.Check{Key: []byte(other), N: 1, Limits: []node.Limit{{Window: dayMS, Max: c.w.limitOf(other)}}})
			}
		}
	}
	done := c.w.enter(p)
	defer done()
	res := make([]node.Result, len(ops))
	p.node.DoAll(ctx, ops, res)
	for i := range ops {
		c.told(p, &ops[i], res[i].Err, res[i].Allowed || ops[i].Kind == syncer.Add, res[i].Source)
	}
}

// count reads a key. Nobody reads more than was ever attempted.
func (c *client) count(p *proc) {
	key := c.free()
	n, err := p.read(key)
	if err != nil || p.dead.Load() {
		return
	}
	c.w.ledger.mu.Lock()
	a := *c.w.ledger.account(key)
	c.w.ledger.mu.Unlock()
	if most := a.acknowledged + a.unknown + c.w.inFlight(); n > most && c.w.plan.exact {
		c.w.t.Errorf("%s: node %s reads %d, at most %d were attempted", key, p.id, n, most)
	}
}

// read asks a node for a key.
func (p *proc) read(key string) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op := node.Op{Kind: node.Count, Checks: []node.Check{{Key: []byte(key), Limits: []node.Limit{{Window: dayMS}}}}}
	var res node.Result
	if err := p.node.Do(ctx, &op, &res); err != nil {
		return 0, err
	}
	return res.Checks[0].Limits[0].Hi, nil
}
