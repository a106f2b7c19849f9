package redisstore_test

import (
	"context"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
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

// view returns the view of the key of a check.
func (m *model) view(c *twotier.Check) *leaparray.View {
	name := string(c.AppendName(nil))
	if m.keys[name] == nil {
		m.keys[name] = &leaparray.View{Ladder: m.ladder(c.NS)}
	}
	m.keys[name].Now = m.now()
	return m.keys[name]
}

// known returns what is known of the key of a check.
func (m *model) known(c *twotier.Check) decide.Key {
	return decide.Key{View: *m.view(c), Values: m.valuesOf(c)}
}

func (m *model) valuesOf(c *twotier.Check) leaparray.ValuesView {
	return leaparray.ValuesView{A: m.values[string(c.AppendName(nil))]}
}

// see sees the values of a check.
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
