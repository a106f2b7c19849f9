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

// newCall returns the call for an operation.
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

// partition returns the partition of the first check.
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
