package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// model carries out operations one at a time in views that nothing else changes. It is a doer.
type model struct {
	ladders map[string]*leaparray.Ladder
	most    map[string]int // values of a key, by namespace
	now     func() int64
	keys    map[string]*leaparray.View
	values  map[string]leaparray.ValueList
}

func newModel(ladders map[string]*leaparray.Ladder, most map[string]int,
	now func() int64) *model {
	return &model{ladders, most, now, map[string]*leaparray.View{},
		map[string]leaparray.ValueList{}}
}

func (m *model) ladder(ns []byte) *leaparray.Ladder {
	if twotier.IsValues(ns) {
		ns, _ = twotier.Accompanied(ns, nil)
	}
	switch l := m.ladders[string(ns)]; {
	case l != nil:
		return l
	case twotier.Companion(ns) != "":
		return syncer.CompanionLadders()[twotier.Companion(ns)]
	}
	return m.ladders[twotier.DefaultNamespace]
}

func (m *model) view(c *twotier.Check) *leaparray.View {
	name := string(c.AppendName(nil))
	if m.keys[name] == nil {
		m.keys[name] = &leaparray.View{Ladder: m.ladder(c.NS)}
	}
	m.keys[name].Now = m.now()
	return m.keys[name]
}

func (m *model) known(c *twotier.Check) decide.Key {
	return decide.Key{View: *m.view(c), Values: m.valuesOf(c)}
}

func (m *model) valuesOf(c *twotier.Check) leaparray.ValuesView {
	return leaparray.ValuesView{A: m.values[string(c.AppendName(nil))]}
}

func (m *model) see(c *twotier.Check, at int64) {
	name, l := string(c.AppendName(nil)), m.ladder(c.NS)
	of, _ := twotier.Accompanied(c.NS, nil)
	list := slices.Clone(m.values[name])
	m.valuesOf(c).See(c.Values, at, m.now()-l.Span(), m.most[string(of)],
		func(hash uint64, seen int64) { list = list.With(hash, seen) })
	m.values[name] = list
}

// Do carries out an operation.
func (m *model) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	now := m.now()
	ts, err := twotier.Validate(op, m.ladder, now)
	if err != nil {
		return err
	}
	c := decide.Call{Op: op, Now: now, TS: ts}
	for i := range op.Checks {
		known := m.known(&op.Checks[i])
		known.Extra = sumOf(op, i) - op.Checks[i].N
		c.Keys = append(c.Keys, known)
	}
	res.Reset()
	switch op.Kind {
	case twotier.Count:
		return c.Compare(res)
	case twotier.Acquire:
		err := c.Acquire(res, false)
		m.apply(&c)
		return err
	}
	if err := c.CheckReach(); err != nil {
		return err
	}
	c.AddCounts(false)
	m.apply(&c)
	c.Keys[0] = m.known(&op.Checks[0])
	err = c.Compare(res)
	c.SetTimes(res)
	return err
}

func (m *model) apply(c *decide.Call) {
	for _, change := range c.Changes {
		v := m.view(&c.Op.Checks[change.Check])
		put := func(at leaparray.Stretch, n int64) { v.Put(&v.A, leaparray.Heap{}, at, n) }
		take := func(at leaparray.Stretch, n int64) { put(at, -n) }
		switch {
		case change.Kind == decide.See:
			m.see(&c.Op.Checks[change.Check], change.At)
		case change.Kind == decide.Mark:
			put(leaparray.Moment(change.At), change.N)
		case change.Kind == decide.Take:
			v.Clone().SelectNewest(-change.N, take)
		case change.N < 0:
			v.Clone().SelectAt(change.At, -change.N, take)
		default:
			put(v.Cell(change.At), change.N)
			beyond := v.Ladder.BucketAfter(change.At)
			mark, ok := v.Ladder.NewestBucket(v.A)
			if change.At > c.Now && (!ok || mark.Start < beyond.Start) {
				v.Mark(&v.A, leaparray.Heap{}, beyond)
			}
		}
	}
}

// sumOf returns the sum that all checks of an operation count for the key of check i.
func sumOf(op *twotier.Op, i int) (n int64) {
	name := string(op.Checks[i].AppendName(nil))
	for j := range op.Checks {
		if string(op.Checks[j].AppendName(nil)) == name {
			n += op.Checks[j].N
		}
	}
	return n
}

// opThatCounts draws an operation on few keys that is rarely refused, so they get many cells.
func opThatCounts(dice *rand.Rand, now int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Kind(dice.IntN(2)), TS: now - dice.Int64N(3)}
	switch dice.IntN(12) {
	case 0:
		op.TS = 0
	case 1:
		op.TS = now - dice.Int64N(30_000)
	case 2:
		op.TS = now + dice.Int64N(2000)
	}
	c := check(fmt.Sprint("k", dice.IntN(2)), 1+dice.Int64N(8)/7)
	c.NS = []byte([]string{"default", "other"}[dice.IntN(2)])
	if dice.IntN(8) == 0 && op.Kind == twotier.Add {
		c.N = -dice.Int64N(4)
	}
	for range 1 + dice.IntN(2) {
		if op.Kind == twotier.Add && dice.IntN(2) == 0 {
			break
		}
		c.Limits = append(c.Limits,
			twotier.Limit{Window: 1 + dice.Int64N(40_000), Max: 1 + dice.Int64N(300)})
	}
	op.Checks = []twotier.Check{c}
	return op
}

// opOnCalendar returns a function that draws operations with calendar and sliding windows.
func opOnCalendar(t *testing.T) func(dice *rand.Rand, now int64) twotier.Op {
	var periods []*twotier.Period
	for _, text := range []string{"hour", "hour@Asia/Kathmandu", "day@America/New_York", "day.6"} {
		p, err := twotier.ParsePeriod(text)
		must.Succeed(t, err)
		periods = append(periods, p)
	}
	return func(dice *rand.Rand, now int64) twotier.Op {
		op := randomOp(dice, now)
		if op.TS != 0 && op.TS < now {
			op.TS = now - dice.Int64N(40*time.Hour.Milliseconds())
		}
		for i := range op.Checks {
			c := &op.Checks[i]
			for j := range c.Limits {
				if dice.IntN(4) > 0 && !c.IsBan() {
					c.Limits[j] = twotier.Limit{Max: 1 + dice.Int64N(60),
						Period: periods[dice.IntN(len(periods))]}
				}
			}
		}
		return op
	}
}

// mostValues is how many values a key keeps in random operations, by namespace.
var mostValues = map[string]int{"default": 12, "other": 5}

// opWithValues is randomOp with checks of different values of the same keys. An add or a count has
// such a check in place of its own.
func opWithValues(dice *rand.Rand, now int64) twotier.Op {
	op := randomOp(dice, now)
	switch {
	case dice.IntN(6) == 0 || op.TakesNewest():
	case op.Kind == twotier.Acquire:
		for _, c := range op.Checks {
			if c.Kind == twotier.EventCheck && c.N > 0 && dice.IntN(3) > 0 {
				op.Checks = append(op.Checks, valuesOf(dice, &op, &c, now))
			}
		}
	default:
		op.Checks[0] = valuesOf(dice, &op, &op.Checks[0], now)
	}
	return op
}

// valuesOf returns a check of different values of a check's key, in windows that the ladders reach.
func valuesOf(dice *rand.Rand, op *twotier.Op, c *twotier.Check, now int64) twotier.Check {
	v := twotier.Check{Kind: twotier.ValuesCheck}
	v.NS, v.Key = twotier.ValuesKey(c.NS, c.Key)
	least := 0
	if op.Kind == twotier.Add {
		least = 1
	}
	for range least + dice.IntN(5) {
		v.Values = append(v.Values, leaparray.CleanHash(dice.Uint64N(40)<<dice.IntN(3)))
	}
	slices.Sort(v.Values)
	v.Values = slices.Compact(v.Values)
	if op.Kind == twotier.Count {
		v.Values = nil
	}
	v.N = int64(len(v.Values))
	reach := shortLevels()[2].Span().Milliseconds()
	if op.TS != 0 {
		reach -= max(0, now-op.TS)
	}
	for _, window := range []int64{1, 777, 3000, 20_000, 50_000} {
		if window <= reach && dice.IntN(2) == 0 {
			v.Limits = append(v.Limits, twotier.Limit{Window: window, Max: 1 + dice.Int64N(16)})
		}
	}
	return v
}

// opByFewRules returns an operation on one of a few keys, with one of a few sets of limits.
func opByFewRules(dice *rand.Rand, now int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire}
	op.TS = now - dice.Int64N(3)*dice.Int64N(2)
	if dice.IntN(20) == 0 {
		op.TS = now - dice.Int64N(3000)
	}
	if dice.IntN(10) == 0 {
		op.Kind = twotier.Add
	}
	rules := [][]twotier.Limit{limits(1500, 9, 9000, 30), limits(1900, 6, 50_000, 90, 20_000, 60)}
	for range 1 + dice.IntN(8)/7 {
		c := check(fmt.Sprint("k", dice.IntN(3)), 1+dice.Int64N(8)/7)
		c.Limits = rules[dice.IntN(10)/9]
		op.Checks = append(op.Checks, c)
	}
	if op.Kind == twotier.Add {
		op.Checks = op.Checks[:1]
		if dice.IntN(2) == 0 {
			op.Checks[0].N = -1 - dice.Int64N(3)
		}
	}
	return op
}

// notStored is the answer of two-tier mode to a settlement that isShort.
const notStored = "unavailable: what the hold counted has not arrived in the store yet"

// settler remembers the operation that counted last, as if it had made a hold.
type settler struct{ op twotier.Op }

// next returns an operation that settles the hold, at times, or the drawn one.
func (s *settler) next(dice *rand.Rand, drawn twotier.Op, now int64) twotier.Op {
	if s.op.Checks != nil && dice.IntN(8) == 0 {
		c := s.op.Checks[0]
		c.N, c.Limits = -1-dice.Int64N(c.N), nil
		return twotier.Op{Kind: twotier.Acquire, TS: s.op.TS, Checks: []twotier.Check{c}}
	}
	if drawn.Kind != twotier.Count && !drawn.DryRun && drawn.Checks[0].N > 0 &&
		drawn.Checks[0].Kind == twotier.EventCheck {
		if s.op = drawn; drawn.TS == 0 {
			s.op.TS = now
		}
	}
	return drawn
}

// isShort reports whether an operation settles a hold of less than a minute, and takes back more
// events than pure-Redis mode has at that time. Two-tier mode refuses such a settlement, because
// another node may have yet to flush the rest.
func isShort(t *testing.T, store *redisstore.Store, direct doer, op twotier.Op, now int64) bool {
	t.Helper()
	c, ts := &op.Checks[0], op.TS
	if ts == 0 {
		ts = now
	}
	if op.Kind != twotier.Acquire || c.N >= 0 || op.DryRun || now-ts >= time.Minute.Milliseconds() {
		return false
	}
	dry, res := op, twotier.Result{}
	dry.DryRun = true
	if err := direct.Do(t.Context(), &dry, &res); err != nil || !op.Counts(&res) {
		return false
	}
	return countedAt(t, store, c, ts) < -c.N
}

// countedAt returns the number of events in the stored buckets of a key that contain a moment.
func countedAt(t *testing.T, s *redisstore.Store, c *twotier.Check, ts int64) (n int64) {
	t.Helper()
	ns := c.NS
	if string(ns) == twotier.DefaultNamespace {
		ns = nil
	}
	r := &syncer.Round{Partition: s.Placement().Of(ns, c.Key), Writer: "reader",
		ReadOnly: true, Keys: []syncer.KeyRound{{NS: ns, Key: c.Key, Load: true}}}
	if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil || r.Keys[0].Err != nil {
		t.Fatal(r.Err, r.Keys[0].Err)
	}
	for _, b := range r.Keys[0].Loaded {
		if b.Start <= ts && ts < b.End() {
			n += b.N
		}
	}
	return n
}
