package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/syncer"
)

// directCall is one operation on its way through a worker. It holds copies of everything it needs,
// because its caller may give up waiting.
type directCall struct {
	batching.Call
	inList  bool // a part of a DoAll
	op      twotier.Op
	ts, now int64
	keys    []directKey     // of the checks
	limits  []twotier.Limit // of all checks
	values  []uint64        // of all checks
	text    []byte          // the namespaces and keys of all checks
	names   []byte          // the names of all hashes

	// The answer: an error, or a result.
	err   error
	res   twotier.Result
	mark  fences.Mark // the mark of the script that carried it out
	known decide.Key  // of a read

	dated  bool        // its moment is ts even if it names none
	next   *directCall // in its group
	losses int         // how often its keys were not as they were read
}

// directKey is the key of a check.
type directKey struct {
	partition int
	hash      uint32 // under which the key is listed
	ladder    *leaparray.Ladder
	values    int    // how many it keeps, see heldValues.most
	name      []byte // of its hash
	held      *heldKey
}

func (d *Direct) newCall(op *twotier.Op, ts, now int64) *directCall {
	c := d.calls.Get().(*directCall)
	c.Reset()
	checks := c.op.Checks
	c.inList, c.op, c.ts, c.now, c.err, c.mark = false, *op, ts, now, nil, fences.Mark{}
	c.dated, c.next, c.losses = false, nil, 0
	c.op.Checks, c.op.Rules, c.op.Leases = append(checks[:0], op.Checks...), nil, nil
	c.keys, c.limits, c.text, c.names = c.keys[:0], c.limits[:0], c.text[:0], c.names[:0]
	c.values = c.values[:0]
	for i := range c.op.Checks {
		check := &c.op.Checks[i]
		ns := storedNamespace(check.NS)
		partition := d.opt.Store.opt.Placement.Of(ns, check.Key)
		from := len(c.names)
		c.names = d.opt.Store.prefix.AppendKey(c.names, partition, ns, check.Key)
		c.keys = append(c.keys, directKey{partition: partition, ladder: d.ladder(ns),
			hash: syncer.KeyHash(ns, check.Key), name: c.names[from:], values: d.mostValues(check)})
		check.NS, check.Key = c.copyText(ns), c.copyText(check.Key)
		from = len(c.limits)
		c.limits = append(c.limits, check.Limits...)
		check.Limits = c.limits[from:]
		from = len(c.values)
		c.values = append(c.values, check.Values...)
		check.Values = c.values[from:]
	}
	return c
}

func (c *directCall) copyText(text []byte) []byte {
	from := len(c.text)
	c.text = append(c.text, text...)
	return c.text[from:]
}

// Size implements batching.Item. In place of bytes it returns the number of keys.
func (c *directCall) Size() (ops, bytes int) { return 1, len(c.keys) }

func (c *directCall) isRead() bool { return c.op.Kind == twotier.Count }

func (c *directCall) partition() int {
	if len(c.keys) == 0 {
		return 0
	}
	return c.keys[0].partition
}

// wait returns an error if the call is not answered in time. Its outcome is then unknown, unless it
// is a read or was not sent yet.
func (c *directCall) wait(ctx context.Context, timeout time.Duration) error {
	switch outcome, err := c.Wait(ctx, timeout); {
	case outcome == batching.Finished:
		return err
	case outcome == batching.Withdrawn:
		return errNotSent
	case c.op.Reads():
		return fmt.Errorf("%w: Redis did not answer in time", twotier.ErrUnavailable)
	}
	return errUnanswered
}

// errUnanswered reports that an operation may still be carried out.
var errUnanswered = fmt.Errorf("%w: Redis did not answer in time", twotier.ErrUnknownOutcome)

// errNotSent reports that an operation was not carried out and never will be.
var errNotSent = fmt.Errorf("%w: there was no time left to ask Redis", twotier.ErrUnavailable)

// Finish implements batching.Item: it wakes the caller, who owns the call from then on. Without an
// error, the call has its answer.
func (c *directCall) Finish(err error) { c.Call.Finish(cmp.Or(err, c.err)) }

// copyResult copies the answer to the caller's result.
func (c *directCall) copyResult(res *twotier.Result) {
	checks := res.Checks[:0]
	*res = c.res
	res.Checks = checks
	for i := range c.res.Checks {
		from, to := &c.res.Checks[i], res.AddCheck()
		limits := to.Limits
		*to = *from
		to.Limits = append(limits, from.Limits...)
	}
}

// extra returns the sum that the other checks of an operation count for the key of check i.
func extra(op *twotier.Op, i int) (n int64) {
	c := &op.Checks[i]
	for j := range op.Checks {
		o := &op.Checks[j]
		if j != i && string(o.Key) == string(c.Key) &&
			string(storedNamespace(o.NS)) == string(storedNamespace(c.NS)) {
			n += o.N
		}
	}
	return n
}

// storedNamespace returns a namespace as it is stored: empty for the default one.
func storedNamespace(ns []byte) []byte {
	if string(ns) == twotier.DefaultNamespace {
		return nil
	}
	return ns
}

// directGroup is a part of a batch: the keys that its calls share, directly or by way of others. It
// is carried out as a whole, because each decision depends on the ones before it.
type directGroup struct {
	keys        []*heldKey
	first, last *directCall
	into        *directGroup // the group that it has become a part of
	stale       bool         // a key was not as it was read
	writes      bool         // the script writes something of it
}

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
