package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// directCall is one operation on its way through a worker. It holds copies of everything it needs,
// because its caller may give up waiting.
type directCall struct {
	batching.Call
	list    *directList // the DoAll it belongs to, or nil
	kind    twotier.Kind
	mode    int64 // how it counts, for the script
	ts, now int64
	present int64 // of the script that carries it out
	checks  []directCheck
	limits  []twotier.Limit // the limits of all checks; the window of a period is its start
	names   []byte          // the names of all hashes, one after the other

	mark   fences.Mark // the mark of the script that carries it out
	divide bool        // its keys are too much for one script
	directAnswer
	answered atomic.Bool // used in a list: the answer has arrived
}

// directAnswer is the answer to a call: an error, a refusal in the server's words, the hash of a
// read, or the values that the script packed.
type directAnswer struct {
	err      error
	refusal  string
	flat     []any
	allowed  bool
	repeated bool
	values   []int64
}

type directCheck struct {
	partition   int
	hash        uint32 // under which the key is listed
	n           int64
	companion   int64 // see packedCompanion
	ladder      *leaparray.Ladder
	plan        int // the number of its plan in the script call
	limits, end int // where its limits and its name end
}

func (d *Direct) encode(op *twotier.Op, ts, now int64) *directCall {
	c := d.calls.Get().(*directCall)
	c.Reset()
	c.answered.Store(false)
	c.list, c.kind, c.mode = nil, op.Kind, countingMode(op)
	c.ts, c.now, c.present = ts, now, now
	c.checks, c.limits, c.names = c.checks[:0], c.limits[:0], c.names[:0]
	c.mark, c.divide, c.directAnswer = fences.Mark{}, false, directAnswer{values: c.values[:0]}
	for i := range op.Checks {
		check := &op.Checks[i]
		ns := storedNamespace(check.NS)
		partition := d.opt.Store.opt.Placement.Of(ns, check.Key)
		c.addLimits(check.Limits)
		c.names = d.opt.Store.prefix.AppendKey(c.names, partition, ns, check.Key)
		c.checks = append(c.checks, directCheck{
			partition: partition, hash: syncer.KeyHash(ns, check.Key), n: check.N,
			companion: packedCompanion(check),
			ladder:    d.ladder(ns), limits: len(c.limits),
			end: len(c.names),
		})
	}
	return c
}

// Size implements batching.Item. In place of bytes it returns the number of checks and limits that
// the script receives.
func (c *directCall) Size() (ops, bytes int) { return 1, len(c.checks) + len(c.limits) }

func (c *directCall) isRead() bool { return c.kind == twotier.Count }

// partition returns the partition of the first check.
func (c *directCall) partition() int {
	if len(c.checks) == 0 {
		return 0
	}
	return c.checks[0].partition
}

// hashName returns the name of a check's hash.
func (c *directCall) hashName(i int) []byte {
	if i == 0 {
		return c.names[:c.checks[0].end]
	}
	return c.names[c.checks[i-1].end:c.checks[i].end]
}

func (c *directCall) limitsOf(i int) []twotier.Limit {
	if i == 0 {
		return c.limits[:c.checks[0].limits]
	}
	return c.limits[c.checks[i-1].limits:c.checks[i].limits]
}

// wait returns an error if the call is not answered in time. Its outcome is then unknown, unless it
// is a read or was not sent yet.
func (c *directCall) wait(ctx context.Context, timeout time.Duration) error {
	switch outcome, _ := c.Wait(ctx, timeout); outcome {
	case batching.Finished:
		return nil
	case batching.Withdrawn:
		return errNotSent
	default:
		return c.abandonError()
	}
}

// errNotSent reports that an operation was not carried out and never will be.
var errNotSent = fmt.Errorf("%w: there was no time left to ask Redis", twotier.ErrUnavailable)

// Finish implements batching.Item: it wakes the caller, who owns the call from then on.
func (c *directCall) Finish(err error) {
	c.err = err
	if l := c.list; l != nil {
		c.answered.Store(true)
		l.markAnswered()
		return
	}
	c.Call.Finish(nil)
}

// directList is a DoAll in progress.
type directList struct {
	left atomic.Int64 // calls without an answer, plus one while the list is being made
	done chan struct{}
}

func newDirectList() *directList {
	l := &directList{done: make(chan struct{})}
	l.left.Store(1)
	return l
}

func (l *directList) markAnswered() {
	if l.left.Add(-1) == 0 {
		close(l.done)
	}
}

// wait is called when the list is complete. It reports whether all calls were answered in time.
func (l *directList) wait(ctx context.Context, timeout time.Duration) bool {
	l.markAnswered()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// abandonError returns the error for a call whose caller stopped waiting while a worker had it.
func (c *directCall) abandonError() error {
	if c.isRead() || c.mode == modeDry {
		return fmt.Errorf("%w: Redis did not answer in time", twotier.ErrUnavailable)
	}
	return fmt.Errorf("%w: Redis did not answer in time", twotier.ErrUnknownOutcome)
}

// decodeResult turns the answer into a result.
func (c *directCall) decodeResult(op *twotier.Op, res *twotier.Result) error {
	if c.err != nil {
		return c.err
	}
	res.Reset()
	res.Source, res.Allowed = twotier.SourceRedis, true
	switch {
	case c.isRead():
		held, err := c.parseCells()
		return cmp.Or(err, c.estimate(op, 0, held, res))
	case c.refusal != "":
		return c.refusalError(op)
	case op.Kind == twotier.Add:
		err := c.decodeAdd(op, res)
		c.setTimes(op, res)
		return err
	}
	values := c.values
	for i := range op.Checks {
		n := valuesOfLimit * len(op.Checks[i].Limits)
		c.decodeCheck(op, i, values[:n], res)
		values = values[n:]
	}
	res.Allowed = c.allowed
	if (!c.repeated || op.DryRun) && (c.allowed || op.CountsRefused(res)) {
		addAdmittedCounts(op, res)
	}
	c.setTimes(op, res)
	return nil
}

// setTimes records when the checks were counted.
func (c *directCall) setTimes(op *twotier.Op, res *twotier.Result) {
	if op.TakesNewest() || !op.Counts(res) {
		return
	}
	for i := range res.Checks {
		switch check := &op.Checks[i]; {
		case check.N == 0 || check.IsLease() && !res.Allowed:
		case check.IsLease():
			res.Checks[i].TS = check.Until
		default:
			res.Checks[i].TS = c.ts
		}
	}
}

// parseCells parses the hash of a read.
func (c *directCall) parseCells() ([]leaparray.Cell, error) {
	buckets := layout.ParseBuckets(c.flat, nil)
	if err := syncer.CheckCounts(buckets); err != nil {
		return nil, fmt.Errorf("%w: Redis refuses this key: %w", twotier.ErrUnavailable, err)
	}
	cells, lacks := make([]leaparray.Cell, len(buckets)), false
	for i, b := range buckets {
		cells[i] = leaparray.Cell{Stretch: b.Stretch, N: b.N}
		lacks = lacks || b.N < 0
	}
	if lacks {
		cells = leaparray.SettleNegatives(cells)
	}
	return cells, nil
}

// decodeAdd reads the hashes of an add, as they are afterwards: for each, the number of cells, and
// each cell's start, width and count.
func (c *directCall) decodeAdd(op *twotier.Op, res *twotier.Result) error {
	values := c.values
	for i := range op.Checks {
		cells := make([]leaparray.Cell, values[0])
		values = values[1:]
		for j := range cells {
			cells[j].Start, cells[j].Width, cells[j].N = values[0], values[1], values[2]
			values = values[valuesOfCell:]
		}
		if err := c.estimate(op, i, cells, res); err != nil {
			return err
		}
	}
	return nil
}

// refusalError turns the script's refusal to carry out an operation into an error.
func (c *directCall) refusalError(op *twotier.Op) error {
	if i, window, ok := c.outOfReach(); ok && i >= 1 && i <= len(c.checks) {
		return twotier.OutOfReach(op, c.checks[i-1].ladder, window, c.ts, c.now)
	}
	return fmt.Errorf("%w: Redis refuses this key: %s", twotier.ErrUnavailable, c.refusal)
}

// decodeCheck reads the script's findings for the limits of one check of an acquire.
func (c *directCall) decodeCheck(op *twotier.Op, i int, values []int64, res *twotier.Result) {
	r := res.AddCheck()
	for j, limit := range op.Checks[i].Limits {
		peak, width, retry := values[valuesOfLimit*j], values[valuesOfLimit*j+1],
			values[valuesOfLimit*j+2]
		if width < 0 {
			width, r.TS = -width, c.now // a ban that has started
		}
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), Period: limit.Period,
			Count: peak, Lo: peak, Hi: peak, BucketMS: width}
		// A batch that was sent twice finds its own counts the second time.
		if lr.Refused = retry != 0 && !(c.repeated && c.allowed); lr.Refused {
			if r.Refused = true; op.Checks[i].IsBan() {
				lr.Hi = c.present + retry // the end of a ban
			}
			if r.RetryAfter >= 0 && (retry < 0 || retry > r.RetryAfter) {
				r.RetryAfter = retry
			}
		}
		r.Limits = append(r.Limits, lr)
	}
	if res.RetryAfter >= 0 && (r.RetryAfter < 0 || r.RetryAfter > res.RetryAfter) {
		res.RetryAfter = r.RetryAfter
	}
}

// addAdmittedCounts adds the counts of an admitted acquire to the figures it returns.
func addAdmittedCounts(op *twotier.Op, res *twotier.Result) {
	for i := range op.Checks {
		if op.Checks[i].IsLease() && !res.Allowed {
			continue
		}
		n := amountForKey(op, i)
		for j := range res.Checks[i].Limits {
			lr := &res.Checks[i].Limits[j]
			lr.Count, lr.Lo, lr.Hi = lr.Count+n, lr.Lo+n, lr.Hi+n
		}
	}
}

// amountForKey returns the sum that all checks of an operation count for the key of check i.
func amountForKey(op *twotier.Op, i int) (n int64) {
	c := &op.Checks[i]
	for j := range op.Checks {
		o := &op.Checks[j]
		if string(o.Key) == string(c.Key) &&
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

// estimate reads the windows of a check from the cells of its hash.
func (c *directCall) estimate(op *twotier.Op, i int, cells []leaparray.Cell,
	res *twotier.Result) error {
	r := res.AddCheck()
	if len(op.Checks[i].Limits) == 0 {
		return nil
	}
	l := c.checks[i].ladder
	v := viewOf(l, cells, c.now)
	for _, limit := range op.Checks[i].Limits {
		window := limit.WindowAt(c.ts)
		e, ok := v.Count(window, c.ts, c.ts >= c.now)
		if !ok {
			return twotier.OutOfReach(op, l, window, c.ts, c.now)
		}
		lr := twotier.LimitResult{Window: limit.Window, Max: limit.Bound(), Period: limit.Period,
			Count: e.Count, Lo: e.Lo, Hi: e.Hi, BucketMS: e.Width}
		if op.Kind == twotier.Add && e.Hi > lr.Max {
			lr.Refused, r.Refused, res.Allowed = true, true, false
		}
		r.Limits = append(r.Limits, lr)
	}
	return nil
}

// viewOf returns a view of a hash's cells, which it sorts. A count that is still negative reads as
// zero, see syncer.CheckCounts.
func viewOf(l *leaparray.Ladder, cells []leaparray.Cell, now int64) leaparray.View {
	// A newer bucket would push out older ones that have not folded yet.
	slices.SortFunc(cells, func(a, b leaparray.Cell) int {
		return cmp.Or(cmp.Compare(b.End(), a.End()), cmp.Compare(b.Start, a.Start))
	})
	v := leaparray.View{Ladder: l, Now: now}
	for _, c := range cells {
		switch {
		case c.N > 0:
			v.Put(&v.A, leaparray.Heap{}, c.Stretch, c.N)
		case c.N == 0 && c.Width == l.Width(0):
			v.Mark(&v.A, leaparray.Heap{}, c.Stretch)
		}
	}
	return v
}
