package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"twotier.dev/twotier"
)

// adder is a client that adds distinct values, and counts them.
type adder struct {
	w       *world
	number  int
	rnd     *rand.Rand
	outside *outside // the Go client to use, if any
}

// valueOp is an operation on distinct values, and the answer to its client.
type valueOp struct {
	twotier.Op
	key   string
	names [][]byte
	did   *addition
	res   twotier.Result
	err   error
}

// newValueOp returns an operation that adds values to a key, if there are any, under limits or, if
// there are none, counts them in windows.
func newValueOp(key string, names [][]byte, limits []twotier.Limit, windows ...int64) *valueOp {
	op := &valueOp{key: key, names: names}
	switch {
	case len(names) == 0:
		op.Kind = twotier.Count
	case len(limits) > 0:
		op.Kind = twotier.Acquire
	}
	for _, w := range windows {
		limits = append(limits, twotier.Limit{Window: w, Max: twotier.MaxBound})
	}
	op.Checks = []twotier.Check{{Key: []byte(key)}}
	op.Values = []twotier.ValuesOf{{Values: names, Limits: limits}}
	return op
}

// counts returns the counts in the limits and windows of the operation.
func (op *valueOp) counts() []twotier.LimitResult {
	if len(op.res.Values) == 0 {
		return nil
	}
	return op.res.Values[0].Limits
}

// overLimit returns the first limit that refused, or nil.
func (op *valueOp) overLimit() *twotier.LimitResult {
	for i := range op.counts() {
		if l := &op.counts()[i]; l.Refused {
			return l
		}
	}
	return nil
}

// end sets the error of an operation that was executed: no limit refuses values that are unknown.
func (op *valueOp) end(err error) {
	if op.err = err; err == nil && !op.res.Allowed && op.overLimit() == nil {
		op.err = twotier.ErrUnavailable
	}
}

// adders is the number of adders.
const adders = 3

// The keys with distinct values: without limits, with one, with two.
const (
	seenKeys   = 3
	fewKeys    = 3
	steadyKeys = 2
)

// mostValues is the approximate maximum number of values of a key, low enough that counts are
// exact.
const mostValues = 450

func (w *world) newAdder(i int, o *outside) *adder {
	a := &adder{w: w, number: i, rnd: rand.New(rand.NewPCG(w.seed, uint64(300+i)))}
	if i == 0 {
		a.outside = o
	}
	return a
}

func (a *adder) run(stop <-chan struct{}) {
	// Adders that send several operations at a time do so less often.
	pause := int64(a.w.plan.pause) * int64(2+4*(adders-1-a.number))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(a.rnd.Int64N(pause))):
		}
		if p := a.w.pick(a.rnd); p != nil {
			a.act(p)
		}
	}
}

// act sends an operation to a process, or several in a batch.
func (a *adder) act(p *proc) {
	if (a.w.plan.exact || a.w.plan.kind.is(crashes, restarts)) && a.rnd.IntN(20) == 0 {
		a.reset(p)
		return
	}
	var ops []*valueOp
	for range 1 + a.rnd.IntN(5)*(adders-1-a.number) {
		ops = append(ops, a.next(p))
	}
	if a.outside != nil {
		p = a.outside.proc
	}
	defer a.w.enter(p)()
	switch {
	case a.outside != nil:
		a.outside.distinct(ops)
	case len(ops) > 1:
		p.distinctAll(ops)
	default:
		p.distinct(ops[0])
	}
	for _, op := range ops {
		a.told(p, op)
	}
}

// distinctAll asks a process to carry out several operations, for two seconds.
func (p *proc) distinctAll(ops []*valueOp) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	all, results := make([]twotier.Op, len(ops)), make([]twotier.Result, len(ops))
	for i, op := range ops {
		all[i] = op.Op
	}
	p.node.DoAll(ctx, all, results)
	for i, op := range ops {
		op.res = results[i]
		op.end(op.res.Err)
	}
}

// next draws an operation for a process.
func (a *adder) next(p *proc) *valueOp {
	switch n := a.rnd.IntN(10); {
	case n < 3:
		return a.add(p, fmt.Sprint("seen", a.rnd.IntN(seenKeys)))
	case n < 5:
		return a.add(p, fmt.Sprint("few", a.rnd.IntN(fewKeys)))
	case n < 7:
		return a.add(p, fmt.Sprint("steady", a.rnd.IntN(steadyKeys)))
	default:
		return a.count(p)
	}
}

// distinct asks a process to carry out an operation, for two seconds.
func (p *proc) distinct(op *valueOp) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op.end(p.node.Do(ctx, &op.Op, &op.res))
	return op.err
}

// add returns an operation that adds values to a key: some that may be there already, and some that
// are never used again.
func (a *adder) add(p *proc, key string) *valueOp {
	did, limits, ack := &addition{}, limitsOn(key), twotier.AckMemory
	if a.rnd.IntN(5) == 0 {
		ack = twotier.AckStore
	}
	var windows []int64
	var ts int64
	switch {
	case len(limits) > 0:
	case a.rnd.IntN(10) == 0:
		did.seen = time.Now().Add(-time.Duration(a.rnd.IntN(40)) * time.Second)
		ts = did.seen.UnixMilli()
	case a.rnd.IntN(2) == 0:
		windows = []int64{dayMS}
	}
	var names [][]byte
	a.w.values.of(key, func(s *seen) {
		names = a.draw(s, did)
	})
	op := newValueOp(key, names, limits, windows...)
	op.did, op.TS, op.Ack = did, ts, ack
	did.verdict = verdict{asked: time.Now(), n: int64(len(names)), by: p.id}
	return op
}

// told records the answer of a process, or of another one in its place.
func (a *adder) told(p *proc, op *valueOp) {
	did, res, err := op.did, &op.res, op.err
	did.told = time.Now()
	a.w.journal.note("client: %s has or is to have %s at %s, ack %v, ts %d: %+v, %v", op.key,
		op.names, p.id, op.Ack, op.TS, *res, err)
	adds := len(op.names) > 0
	if p.dead.Load() {
		if adds {
			a.w.values.of(op.key, func(s *seen) { s.ops = append(s.ops, did) })
		}
		return
	}
	did.allowed, did.refused = err == nil && res.Allowed, err == nil && !res.Allowed
	did.source, did.degraded = res.Source, res.Degraded
	if adds {
		a.w.values.of(op.key, func(s *seen) {
			if did.refused && !s.mayBeVoid(did) && s.most() <= op.overLimit().Max {
				a.w.t.Errorf("%s: node %s refuses, although %d values at most were sent: %+v",
					op.key, p.id, len(s.values), *res)
			}
			// An earlier attempt of the Go client that got no answer may still be allowed.
			did.refused = did.refused && a.outside == nil
			if err == nil && a.outside == nil {
				s.settle(did)
			}
			s.take(did)
		})
	}
	if err != nil {
		a.w.refused.Add(1)
		a.w.acceptable(p, err)
		return
	}
	a.judge(p, op)
}

// reset resets one of a few keys, if every live node can be reached.
func (a *adder) reset(p *proc) {
	key := fmt.Sprint([]string{"seen", "few", "steady"}[a.rnd.IntN(3)], 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	defer a.w.enter(p)()
	a.w.values.of(key, func(s *seen) { s.resets++ })
	asked, told := time.Now(), a.w.allKnown()
	err := p.node.Reset(ctx, nil, []byte(key))
	told = a.w.allKnown() && told
	a.w.journal.note("client: %s is reset at %s: %v", key, p.id, err)
	a.w.values.of(key, func(s *seen) {
		s.resets--
		switch {
		case err == nil && told && !p.dead.Load():
			s.reset(asked, 2*a.w.plan.skew)
		default: // a node that did not learn of it has the values until it asks Redis
			s.mayBeReset(time.Now().Add(2*time.Second + answering + lateness))
		}
	})
	if err != nil {
		a.w.refused.Add(1)
		a.w.acceptable(p, err)
	}
}

// allKnown reports whether all live processes see each other as members.
func (w *world) allKnown() bool {
	for _, p := range w.living() {
		if !w.hasAll(p) {
			return false
		}
	}
	return true
}

// draw returns the values of an addition, and records that they will be sent.
func (a *adder) draw(s *seen, did *addition) (names [][]byte) {
	for range 1 + a.rnd.IntN(4) {
		if a.rnd.IntN(2) == 0 || len(s.values) >= mostValues {
			names = append(names, fmt.Append(nil, "v", a.rnd.IntN(8)))
			continue
		}
		a.w.values.serial++
		names = append(names, fmt.Append(nil, "once", a.w.values.serial))
		did.own = append(did.own, a.w.hash(names[len(names)-1]))
	}
	for _, name := range names {
		did.hashes = append(did.hashes, a.w.hash(name))
	}
	s.send(did.hashes, names)
	return names
}

// count returns an operation that counts the values of a key.
func (a *adder) count(p *proc) *valueOp {
	key := fmt.Sprint([]string{"seen", "few", "steady"}[a.rnd.IntN(3)], a.rnd.IntN(2))
	op := newValueOp(key, nil, nil, dayMS)
	op.did = &addition{verdict: verdict{asked: time.Now(), by: p.id}}
	return op
}

// judge checks the counts of an answer: they include everything acknowledged before, unless the
// answer reports that Redis could not be asked, and nothing that was never sent.
func (a *adder) judge(p *proc, op *valueOp) {
	key, did, counts, asked := op.key, op.did, op.counts(), op.Values[0].Limits
	if len(counts) != len(asked) {
		a.w.t.Errorf("%s: node %s counts %+v, asked for %v", key, p.id, counts, asked)
		return
	}
	a.w.values.of(key, func(s *seen) {
		if s.mayBeVoid(did) {
			return
		}
		for i, c := range counts {
			least := int64(0)
			if a.w.plan.exact && !op.res.Degraded && asked[i].Window == dayMS {
				least = s.least(did.asked)
			}
			if c.Count < least || c.Count > s.most() || c.Error != 0 ||
				c.Window != asked[i].Window {
				a.w.t.Errorf("%s: node %s counts %+v (%s) at %s, want %d to %d", key, p.id, c,
					op.res.Source, did.told.Format("05.000"), least, s.most())
				a.w.t.Logf("%s:\n%s", key, a.w.journal.about(key))
			}
		}
	})
}
