package simtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"twotier.dev/twotier"
)

// client sends random requests to random nodes until it is stopped.
type client struct {
	w       *world
	number  int
	rnd     *rand.Rand
	outside *outside // the Go client to use, if any
	hasty   bool     // it has less patience than others
	durable bool     // it waits until Redis has its counts, with more patience than others
	// The counts that it may still take back: from one bucket, and from the newest ones.
	balance, unspent int64
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
		c.act(p)
	}
}

// act sends one random request to a node.
func (c *client) act(p *proc) {
	if c.w.plan.hotRate > 0 && c.rnd.IntN(3) == 0 {
		c.do(p, c.crowd()...)
		return
	}
	switch n := c.rnd.IntN(100); {
	case n < 27:
		c.do(p, c.add())
	case n < 47:
		c.do(p, c.acquire(1))
	case n < 57:
		c.do(p, c.acquire(2+c.rnd.IntN(2)))
	case n < 62:
		c.group(p)
	case n < 74:
		c.do(p, c.pace())
	case n < 77:
		c.do(p, c.overdraw())
	case n < 85:
		c.do(p, c.batch()...)
	case n < 89:
		c.clear(p)
	case n < 92:
		c.series(p)
	default:
		c.count(p)
	}
}

const (
	freeKeys    = 8
	limitedKeys = 6
	pacedKeys   = 2
	hourMS      = 3_600_000
	dayMS       = 24 * hourMS
)

// free returns a key without a limit: one of a few, or one that is never used again, which reveals
// the outcome of a single count.
func (c *client) free() string {
	if c.rnd.IntN(3) == 0 {
		return fmt.Sprint("once", c.w.once.Add(1))
	}
	return fmt.Sprint("free", c.rnd.IntN(freeKeys))
}

func (c *client) limited() string { return fmt.Sprint("limited", c.rnd.IntN(limitedKeys)) }

// context sets a client's patience: mostly two seconds, now and then anything from a tenth of a
// millisecond.
func (c *client) context() (context.Context, context.CancelFunc) {
	patience := 2 * time.Second
	if c.durable {
		patience *= 3
	}
	if (c.hasty || c.rnd.IntN(6) == 0) && !c.w.plan.patient {
		patience = time.Duration(float64(patience) * math.Pow(10, -4.3*c.rnd.Float64()))
	}
	return context.WithTimeout(context.Background(), patience)
}

func (c *client) ack() twotier.Ack {
	if c.durable || c.rnd.IntN(5) == 0 {
		return twotier.AckStore
	}
	return twotier.AckMemory
}

// do makes a process execute operations and records the outcome of each.
func (c *client) do(p *proc, ops ...twotier.Op) {
	for i := range ops {
		for _, check := range ops[i].Checks {
			// The account must exist first: a key may be counted before the client gets an answer.
			c.w.ledger.of(string(check.Key), func(*account) {})
		}
	}
	ctx, cancel := c.context()
	defer cancel()
	by, _ := ctx.Deadline()
	asked, res := time.Now(), make([]twotier.Result, len(ops))
	if c.outside != nil {
		p = c.outside.proc
	}
	done := c.w.enter(p)
	defer done()
	early := c.countedBy(by.Add(-1), ops)
	switch {
	case c.outside != nil:
		c.outside.do(ctx, ops, res)
	case len(ops) > 1:
		p.node.DoAll(ctx, ops, res)
	default:
		res[0].Err = p.node.Do(ctx, &ops[0], &res[0])
	}
	c.w.meter.took(len(ops), time.Since(asked))
	for i := range ops {
		if key := string(ops[i].Checks[0].Key); early.lacks(key) && res[i].Err == nil &&
			res[i].Source == twotier.SourceFallback && !p.dead.Load() {
			c.w.t.Errorf("%s: node %s stands in when the time for it is up", key, p.id)
		}
		// There may be nothing to take back, or only a part.
		if check := &ops[i].Checks[0]; i > 0 && res[i-1].Err != nil && res[i].Err == nil &&
			strings.HasPrefix(string(check.Key), "paired") {
			c.w.ledger.doubt(string(check.Key), check.N, by)
			continue
		}
		c.told(p, &ops[i], &res[i], asked, by, len(ops) == 1)
	}
}

// told records the outcome of an operation whose deadline was by, sent alone or in a batch.
func (c *client) told(p *proc, op *twotier.Op, res *twotier.Result, asked, by time.Time,
	alone bool) {
	err := res.Err
	if p.dead.Load() && err == nil {
		err = twotier.ErrUnknownOutcome // a dead process's answers don't arrive
	}
	for i := range op.Checks {
		key, n := string(op.Checks[i].Key), op.Checks[i].N
		c.w.journal.note("client: %s %+d at %s: allowed %v (%s), %v", key, n, p.id, res.Allowed,
			res.Source, err)
		switch {
		case err == nil && op.Counts(res):
			c.w.ledger.acknowledge(key, n, c.w.plan.exact)
			switch {
			case strings.HasPrefix(key, "taken"):
				c.balance += max(0, n)
			case strings.HasPrefix(key, "refunded"):
				c.unspent += max(0, n)
			}
			if op.Kind == twotier.Acquire && res.Allowed {
				v := verdict{asked: asked, told: time.Now(), n: n, by: p.id, ip: p.ip,
					source: res.Source, degraded: res.Degraded}
				if c.outside != nil {
					v.ip = "" // that of the node that it has asked is not known
				}
				c.w.ledger.admit(key, v)
			}
		case unknown(p, err) && !op.Reads():
			if c.outside != nil { // over HTTP the deadline is not sent along
				c.w.ledger.doubt(key, n, by.Add(answering+lateness))
				continue
			}
			c.w.ledger.doubt(key, n, by.Add(lateness))
			c.w.watch(key, by)
		}
	}
	if err != nil {
		c.w.refused.Add(1)
		c.w.acceptable(p, err)
		return
	}
	if late := time.Since(by); late > lateness && c.outside == nil && op.Counts(res) &&
		!c.w.sight.stoodStill(p.ip, span{asked, time.Now()}) {
		c.w.t.Errorf("%s: node %s counts %v after the time for it was up", op.Checks[0].Key, p.id,
			late)
	}
	c.judge(p, op, res, asked, alone)
}

// unknown reports whether an operation that ended with this error may have been executed.
func unknown(p *proc, err error) bool {
	return errors.Is(err, twotier.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, twotier.ErrClosed) && p.dead.Load()
}

// judge checks the consistency of a result: a decision has the numbers of its checks, a refusal has
// a reason, and no node stands in for a reachable owner.
func (c *client) judge(p *proc, op *twotier.Op, res *twotier.Result, asked time.Time,
	alone bool) {
	switch {
	case res.Source == twotier.SourceNear && res.Allowed:
		c.w.borrowed.Add(1)
	case res.Source == twotier.SourceNear:
		c.w.near.Add(1)
	case res.Source == twotier.SourceFallback:
		if c.w.plan.exact {
			key := string(op.Checks[0].Key)
			c.w.t.Errorf("%s: node %s stood in for an owner that could be reached at %s", key, p.id,
				time.Now().Format("05.000"))
			c.w.t.Logf("%s:\n%s", key, c.w.journal.about(key))
		}
		if c.outside == nil {
			c.w.sight.standIn(p, op, asked, alone)
		}
	}
	if op.Kind != twotier.Acquire {
		return
	}
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

// add counts now or at a time a moment ago, or takes back.
func (c *client) add() twotier.Op {
	check := twotier.Check{Key: []byte(c.free()), N: 1 + c.rnd.Int64N(4)}
	op := twotier.Op{Kind: twotier.Add, Ack: c.ack()}
	switch c.rnd.IntN(12) {
	case 0, 1, 2:
		return c.takeBack()
	case 3:
		op.TS = c.before()
	case 4:
		check = c.large()
	}
	op.Checks = []twotier.Check{check}
	return op
}

// large counts an amount that needs a different representation in memory than one or two do, or
// more than 32 bits in total, on a key that only this client uses.
func (c *client) large() twotier.Check {
	edges := [...]int64{1<<24 - 1, 1<<24 + 1, 1<<31 - 1}
	n := edges[c.rnd.IntN(len(edges))]
	return twotier.Check{Key: fmt.Appendf(nil, "large%d", c.number), N: n}
}

// takeBack counts in one bucket of a key that only this client uses, or takes back from it, but no
// more than the bucket must contain.
func (c *client) takeBack() twotier.Op {
	if c.w.plan.exact && c.rnd.IntN(2) == 0 {
		return c.refund()
	}
	n := 4 - c.rnd.Int64N(8)
	if n = max(n, -c.balance); n == 0 {
		n = 1
	}
	c.balance += min(0, n)
	return twotier.Op{Kind: twotier.Add, TS: c.w.began.UnixMilli(), Ack: c.ack(),
		Checks: []twotier.Check{{Key: fmt.Appendf(nil, "taken%d", c.number), N: n}}}
}

// refund counts now, in a key that only this client uses, or takes back without naming a time.
func (c *client) refund() twotier.Op {
	n := 4 - c.rnd.Int64N(8)
	if n = max(n, -c.unspent); n == 0 {
		n = 1
	}
	c.unspent += min(0, n)
	return twotier.Op{Kind: twotier.Add, Ack: c.ack(),
		Checks: []twotier.Check{{Key: fmt.Appendf(nil, "refunded%d", c.number), N: n}}}
}

func (c *client) paced() string { return fmt.Sprint("paced", c.rnd.IntN(pacedKeys)) }

// acquire acquires that many limited keys at once. A key drawn again is counted by another check,
// whose limit is never reached: the limits of the first check hold for the sum.
func (c *client) acquire(keys int) twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire, Ack: c.ack(), DryRun: c.rnd.IntN(20) == 0}
	if keys == 1 && c.rnd.IntN(12) == 0 {
		op.TS = c.before()
	}
	used := map[string]bool{}
	for range keys {
		key := c.limited()
		if keys > 1 && c.rnd.IntN(3) == 0 {
			key = c.paced() // a key with little left
		}
		check := twotier.Check{Key: []byte(key), N: 1, Limits: limitsOf(key)}
		if used[key] {
			check.Limits = []twotier.Limit{{Window: dayMS, Max: 1 << 40}}
			op.Checks = append(op.Checks, check)
			continue
		}
		used[key] = true
		op.Checks = append(op.Checks, check)
	}
	return op
}

// batch returns several operations for one batch.
func (c *client) batch() []twotier.Op {
	ops := make([]twotier.Op, 2+c.rnd.IntN(10))
	for i := range ops {
		switch c.rnd.IntN(6) {
		case 0:
			ops[i] = c.acquire(1)
		case 1:
			ops[i] = c.acquire(2)
		default:
			ops[i] = c.add()
		}
	}
	if c.w.plan.exact && len(ops) > 8 {
		ops = append(ops, c.pair(int64(len(ops)))...)
	}
	return ops
}

// pair counts in a key that only this client uses, and takes that back: in the other order there
// would be nothing to take back.
func (c *client) pair(n int64) []twotier.Op {
	key := fmt.Appendf(nil, "paired%d", c.number)
	return []twotier.Op{
		{Kind: twotier.Add, Ack: c.ack(), Checks: []twotier.Check{{Key: key, N: n}}},
		{Kind: twotier.Add, Ack: c.ack(), Checks: []twotier.Check{{Key: key, N: -n}}},
	}
}

// count reads a key. The result must not exceed the sum of all attempts.
func (c *client) count(p *proc) {
	key := c.free()
	n, err := p.read(key, dayMS)
	if err != nil || p.dead.Load() {
		return
	}
	a := c.w.ledger.copy(key)
	if most := a.most() + c.w.inFlight(); n > most && c.w.plan.exact {
		c.w.t.Errorf("%s: node %s reads %d, at most %d were attempted", key, p.id, n, most)
	}
}

// read asks a node for a key.
func (p *proc) read(key string, window int64) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op := twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Key: []byte(key), Limits: []twotier.Limit{{Window: window}}}}}
	var res twotier.Result
	if err := p.node.Do(ctx, &op, &res); err != nil {
		return 0, err
	}
	return res.Checks[0].Limits[0].Hi, nil
}
