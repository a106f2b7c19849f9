package simtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// redisSeen is a node's view of Redis apart from counts: its clock, and whether it answers.
type redisSeen struct{ p *proc }

func (s redisSeen) ClockAhead(ctx context.Context, local func() time.Time) (time.Duration, error) {
	if err := s.p.w.net.Awake(ctx, s.p.ip); err != nil {
		return 0, err
	}
	if s.p.store.Down() {
		return 0, fmt.Errorf("no answer")
	}
	return time.Since(local()) + time.Duration(s.p.ahead.Load()), nil
}

func (s redisSeen) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Kind: "simulated", Up: !s.p.store.Down()}
}

// lag delays messages on a path that is sometimes slow.
type lag struct {
	most time.Duration
	mu   sync.Mutex
	rnd  *rand.Rand
}

func newLag(seed uint64, most time.Duration) *lag {
	return &lag{most: most, rnd: rand.New(rand.NewPCG(seed, 0x1a6))}
}

func (l *lag) next() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == 0 || l.rnd.IntN(4) > 0 {
		return 0
	}
	return time.Duration(l.rnd.Int64N(int64(l.most)))
}

// slow makes the path slow, until the returned function is called.
func (l *lag) slow(most time.Duration) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.most
	l.most = max(had, most)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.most = had
	}
}

// toRedis is the path to Redis, or back.
func (p *proc) toRedis(ctx context.Context) error {
	if err := p.w.net.Awake(ctx, p.ip); err != nil || p.w.healed.Load() {
		return err
	}
	d := p.takes.next()
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// direct executes operations in the simulated Redis, one at a time as Redis does.
type direct struct {
	p      *proc
	now    func() int64
	writer string

	mu   sync.Mutex
	seqs map[int]uint64
}

func (d *direct) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	res.Reset()
	if d.p.store.Down() || d.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	if err := d.carryOut(op, res); err != nil {
		return err
	}
	if d.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnknownOutcome)
	}
	return nil
}

// carryOut does the work of Redis, atomically.
func (d *direct) carryOut(op *twotier.Op, res *twotier.Result) error {
	d.p.w.atomic.Lock()
	defer d.p.w.atomic.Unlock()
	ts, err := twotier.Validate(op, d.p.ladderOf, d.now())
	if err != nil {
		return err
	}
	res.Allowed, res.Source = true, twotier.SourceRedis
	for i := range op.Checks {
		d.compare(op, &op.Checks[i], res.AddCheck(), ts)
		res.Allowed = res.Allowed && !res.Checks[i].Refused
	}
	if res.Allowed {
		includeLeases(op, res)
	}
	if !res.Allowed && !op.DryRun {
		d.startBans(op, res)
	}
	if !op.Counts(res) {
		return nil
	}
	for i := range op.Checks {
		c, r := &op.Checks[i], &res.Checks[i]
		v := d.view(c.NS, c.Key)
		take := func(at leaparray.Stretch, n int64) { d.writeCheck(c, at, -n) }
		switch {
		case c.N == 0 || c.IsLease() && !res.Allowed:
			continue
		case c.IsLease():
			d.writeCheck(c, leaparray.Moment(c.Until), c.N)
			r.TS = c.Until
			continue
		case op.TakesNewest():
			v.SelectNewest(-c.N, take)
		case c.N < 0:
			v.SelectAt(ts, -c.N, take)
		default:
			d.writeCheck(c, v.Cell(ts), c.N)
		}
		if !op.TakesNewest() {
			r.TS = ts
		}
	}
	return nil
}

// compare compares the limits of a check.
func (d *direct) compare(op *twotier.Op, c *twotier.Check, r *twotier.CheckResult, ts int64) {
	v := d.view(c.NS, c.Key)
	if c.IsBan() {
		d.forbid(c, r)
		return
	}
	for _, limit := range c.Limits {
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Max, Period: limit.Period}
		switch {
		case c.IsLease():
			compareLeases(op, c, v, &lr)
		case op.Kind != twotier.Acquire:
			e, _ := v.Count(limit.WindowAt(ts), ts, true)
			lr.Count, lr.Lo, lr.Hi = e.Count, e.Lo, e.Hi
		case limit.Period != nil:
			start, end := limit.Period.Around(ts)
			lr.Count = v.UpperBound(start, end-1)
			lr.Refused = lr.Count+max(1, inAll(op, c)) > limit.Max
		default:
			lr.Count, _ = v.Peak(limit.Window, ts)
			lr.Refused = lr.Count+max(1, inAll(op, c)) > limit.Max
		}
		r.Refused = r.Refused || lr.Refused
		r.Limits = append(r.Limits, lr)
	}
}

// compareLeases compares leases that a check takes or returns with the ones that are open.
func compareLeases(op *twotier.Op, c *twotier.Check, v leaparray.View, lr *twotier.LimitResult) {
	sum := inAll(op, c)
	if c.N < 0 {
		lr.Count = v.Value(leaparray.Moment(c.Until))
		lr.Refused = c.Until <= v.Now || lr.Count+min(c.N, sum) < 0
		return
	}
	lr.Count = decide.OpenLeases(v)
	lr.Refused = lr.Count+max(0, sum) > lr.Max
}

// includeLeases adds the leases of an admitted acquire to its figures.
func includeLeases(op *twotier.Op, res *twotier.Result) {
	for i := range op.Checks {
		if c := &op.Checks[i]; c.IsLease() {
			res.Checks[i].Limits[0].Count += inAll(op, c)
		}
	}
}

// forbid compares a ban with the present.
func (d *direct) forbid(c *twotier.Check, r *twotier.CheckResult) {
	lr, now := twotier.LimitResult{Window: c.Limits[0].Window}, d.now()
	if end := decide.BanEnd(d.view(c.NS, c.Key)); end > now {
		lr.Refused, lr.Count, lr.Lo, lr.Hi = true, 1, 1, end
		r.Refused, r.RetryAfter = true, end-now
	}
	r.Limits = append(r.Limits[:0], lr)
}

// inAll returns how many events all checks of an operation count on the key of one of them.
func inAll(op *twotier.Op, c *twotier.Check) (n int64) {
	for i := range op.Checks {
		if o := &op.Checks[i]; bytes.Equal(o.AppendName(nil), c.AppendName(nil)) {
			n += o.N
		}
	}
	return n
}

// startBans counts the bans whose limits have refused.
func (d *direct) startBans(op *twotier.Op, res *twotier.Result) {
	banned := 0
	for i := range op.Checks {
		c, r := &op.Checks[i], &res.Checks[i]
		if !c.IsBan() {
			banned = i
			continue
		}
		limits := res.Checks[banned].Limits[c.Ban.From:c.Ban.To]
		if r.Refused || !slices.ContainsFunc(limits, func(l twotier.LimitResult) bool {
			return l.Refused
		}) {
			continue
		}
		now := d.now()
		d.writeCheck(c, leaparray.Moment(now+c.Limits[0].Window), 1)
		d.forbid(c, r)
		r.TS = now
	}
}

func (d *direct) view(ns, key []byte) leaparray.View {
	return d.p.w.load(d.p.ladderOf(ns), ns, key, d.now())
}

// writeCheck changes a cell of a key for a check.
func (d *direct) writeCheck(c *twotier.Check, at leaparray.Stretch, n int64) {
	l := d.p.ladderOf(c.NS)
	d.write(syncer.KeyRound{NS: c.NS, Key: c.Key, TTL: syncer.KeyTTL(l), Renew: true,
		Adds: []syncer.Bucket{{Stretch: at, N: n}}, Ladder: l, Fold: at.Start%8 == 0})
	d.p.w.journal.note("redis: %s %+d (now %d) from %s directly", c.Key, n,
		d.p.w.stored(string(c.Key)), d.writer)
}

// write changes a key in a separate round.
func (d *direct) write(k syncer.KeyRound) {
	if twotier.Companion(k.NS) == "" {
		k.NS = nil // the default one
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seqs == nil {
		d.seqs = map[int]uint64{}
	}
	partition := d.p.w.placement().Of(k.NS, k.Key)
	d.seqs[partition]++
	r := &syncer.Round{Partition: partition, Now: d.now(), Writer: d.writer,
		Seq: d.seqs[partition], Keys: []syncer.KeyRound{k}}
	d.p.w.redis.Exchange(context.Background(), []*syncer.Round{r})
}

func (d *direct) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = d.Do(ctx, &ops[i], &res[i])
	}
}

// Series implements node.Direct.
func (d *direct) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	if d.p.store.Down() || d.p.toRedis(ctx) != nil {
		return 0, nil, fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	v := d.view(ns, key)
	bucketMS, _ = v.Series(window, d.now(), func(start, n int64) {
		points = append(points, twotier.Point{Start: start, Count: n})
	})
	return bucketMS, points, nil
}

// Snapshot implements node.Direct.
func (d *direct) Snapshot(ctx context.Context, ns, key []byte) (v leaparray.View, now int64,
	err error) {
	if d.p.store.Down() || d.p.toRedis(ctx) != nil {
		return v, 0, fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	return d.view(ns, key), d.now(), nil
}

// Forget implements node.Direct.
func (d *direct) Forget(ctx context.Context, ns, key []byte) error {
	if d.p.store.Down() || d.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnavailable)
	}
	d.p.w.atomic.Lock()
	d.write(syncer.KeyRound{NS: ns, Key: key, Reset: true})
	d.p.w.journal.note("redis: %s reset from %s directly", key, d.writer)
	d.p.w.atomic.Unlock()
	if d.p.toRedis(ctx) != nil {
		return fmt.Errorf("%w: no answer", twotier.ErrUnknownOutcome)
	}
	return nil
}
