package redisstore

import (
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
)

// directGroup is a part of a batch: the keys that its calls share, directly or by way of others. It
// is carried out as a whole, because each decision depends on the ones before it.
type directGroup struct {
	keys        []*heldKey
	first, last *directCall
	into        *directGroup // the group that it has become a part of
	stale       bool         // a key was not as it was read
	writes      bool         // the script writes something of it
}

// root returns the group that a group is a part of.
func (g *directGroup) root() *directGroup {
	for g.into != nil {
		g = g.into
	}
	return g
}

// join adds the calls and the keys of another group, whose calls come first.
func (g *directGroup) join(o *directGroup) {
	if g == o {
		return
	}
	o.into = g
	g.keys = append(g.keys, o.keys...)
	o.last.next, g.first = g.first, o.first
}

// calls calls yield for each call of the group, which may reuse it.
func (g *directGroup) calls(yield func(*directCall) bool) {
	for c := g.first; c != nil; {
		next := c.next
		if !yield(c) {
			return
		}
		c = next
	}
}

// manyLosses is how often a call may lose its keys to others before the worker claims them.
const manyLosses = 4

// claims returns whether the keys are claimed if they are not as they were read, for the script.
func (g *directGroup) claims() int64 {
	for c := range g.calls {
		if c.losses >= manyLosses {
			return 1
		}
	}
	return 0
}

// decider decides calls by what a worker holds of their keys.
type decider struct{ decide.Call }

// decide decides a call whose keys are held, and makes its changes in what is held of them. Others
// may have counted while it waited: unless it names a moment, its moment is now.
func (d *decider) decide(c *directCall, now int64) {
	d.Op, d.Now, d.TS, d.Keys, d.Changes = &c.op, now, c.ts, d.Keys[:0], d.Changes[:0]
	if c.op.TS == 0 && !c.dated {
		d.TS = now
	}
	c.err = nil
	c.res.Reset()
	c.res.Source = twotier.SourceRedis
	for i := range c.keys {
		known := c.keys[i].held.known(now)
		if len(c.keys) > 1 {
			known.Extra = extra(&c.op, i)
		}
		d.Keys = append(d.Keys, known)
	}
	if c.op.Kind == twotier.Add {
		c.err = d.add(c)
		return
	}
	if c.err = d.Acquire(&c.res, false); c.err == nil {
		c.err = d.apply(c)
	}
}

// read answers a call that only reads a key.
func (d *decider) read(c *directCall) {
	d.Op, d.Now, d.TS = &c.op, c.now, c.ts
	d.Keys = append(d.Keys[:0], c.known)
	c.res.Reset()
	c.res.Source = twotier.SourceRedis
	c.err = d.Compare(&c.res)
}

func (d *decider) add(c *directCall) error {
	if err := d.CheckReach(); err != nil {
		return err
	}
	d.AddCounts(false)
	if err := d.apply(c); err != nil {
		return err
	}
	for i := range d.Keys {
		d.Keys[i] = c.keys[i].held.known(d.Now)
	}
	if err := d.Compare(&c.res); err != nil {
		return err
	}
	d.SetTimes(&c.res)
	return nil
}

// mostCounted bounds the events of a key, so that no sum overflows.
const mostCounted = 1 << 62

// apply makes the changes that were decided on, or none if it returns an error.
func (d *decider) apply(c *directCall) error {
	for i := range d.Changes {
		change := &d.Changes[i]
		k := c.keys[change.Check].held
		if change.N > 0 && k.ladder.Total(k.counts) > mostCounted-change.N*int64(len(d.Changes)) {
			return fmt.Errorf("%w: Redis refuses this key: its counts would overflow",
				twotier.ErrUnavailable)
		}
	}
	for i := range d.Changes {
		change := &d.Changes[i]
		d.applyChange(c.keys[change.Check].held, change)
	}
	return nil
}

func (d *decider) applyChange(k *heldKey, c *decide.Change) {
	take := func(at leaparray.Stretch, n int64) { k.add(at, -n, d.Now) }
	v := k.view(d.Now)
	switch {
	case c.Kind == decide.See:
		k.see(d.Op.Checks[c.Check].Values, c.At, d.Now)
	case c.Kind == decide.Mark:
		k.add(leaparray.Moment(c.At), c.N, d.Now)
	case c.Kind == decide.Take:
		v.Clone().SelectNewest(-c.N, take)
	case c.N < 0:
		v.Clone().SelectAt(c.At, -c.N, take)
	default:
		k.add(v.Cell(c.At), c.N, d.Now)
		if c.At > d.Now {
			k.markAhead(c.At, d.Now)
		}
	}
}
