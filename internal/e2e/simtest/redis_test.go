package simtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
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

// carryOut reads, decides and writes, atomically.
func (d *direct) carryOut(op *twotier.Op, res *twotier.Result) error {
	d.p.w.atomic.Lock()
	defer d.p.w.atomic.Unlock()
	ts, err := twotier.Validate(op, d.p.ladderOf, d.now())
	if err != nil {
		return err
	}
	res.Source = twotier.SourceRedis
	call := decide.Call{Op: op, Now: d.now(), TS: ts}
	for i := range op.Checks {
		c := &op.Checks[i]
		call.Keys = append(call.Keys, decide.Key{View: d.view(c.NS, c.Key),
			Values: d.values(c), Extra: inAll(op, c) - c.N})
	}
	switch op.Kind {
	case twotier.Count:
		return call.Compare(res)
	case twotier.Acquire:
		err := call.Acquire(res, false)
		d.change(&call)
		return err
	}
	if err := call.CheckReach(); err != nil {
		return err
	}
	call.AddCounts(false)
	d.change(&call)
	call.Keys[0].View = d.view(op.Checks[0].NS, op.Checks[0].Key)
	call.Keys[0].Values = d.values(&op.Checks[0])
	err = call.Compare(res)
	call.SetTimes(res)
	return err
}

// change writes the changes that were decided on.
func (d *direct) change(call *decide.Call) {
	for i := range call.Changes {
		change := &call.Changes[i]
		c := &call.Op.Checks[change.Check]
		v := d.view(c.NS, c.Key)
		take := func(at leaparray.Stretch, n int64) { d.writeCheck(c, at, -n) }
		switch {
		case change.Kind == decide.See:
			for _, hash := range c.Values {
				d.writeCheck(c, leaparray.ValueAt(hash), change.At)
			}
		case change.Kind == decide.Mark:
			d.writeCheck(c, leaparray.Moment(change.At), change.N)
		case change.Kind == decide.Take:
			v.SelectNewest(-change.N, take)
		case change.N < 0:
			v.SelectAt(change.At, -change.N, take)
		default:
			d.writeCheck(c, v.Cell(change.At), change.N)
		}
	}
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

func (d *direct) view(ns, key []byte) leaparray.View {
	return d.p.w.load(d.p.ladderOf(ns), ns, key, d.now())
}

// values returns what Redis has of the key of a check of different values.
func (d *direct) values(c *twotier.Check) leaparray.ValuesView {
	return leaparray.ValuesView{A: d.p.w.valuesIn(c.NS, c.Key)}
}

// writeCheck changes a cell of a key for a check.
func (d *direct) writeCheck(c *twotier.Check, at leaparray.Stretch, n int64) {
	l := d.p.ladderOf(c.NS)
	k := syncer.KeyRound{NS: c.NS, Key: c.Key, TTL: syncer.KeyTTL(l), Renew: true,
		Adds: []syncer.Bucket{{Stretch: at, N: n}}}
	d.write(k)
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
