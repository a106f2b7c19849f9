package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/redisstore/internal/fences"
)

// Bounds of a worker.
const (
	maxWaiting   = 16_384
	maxTogether  = 256
	maxKeys      = 1024   // in a batch
	maxFolds     = 4096   // cells that fold in a script
	maxBuckets   = 20_000 // upper bound for the keys of reads sent together
	manyAnswered = 4
	directMinGap = 5 * time.Millisecond
	directMaxGap = 200 * time.Millisecond
)

// directWorker carries out operations, one batch at a time.
type directWorker struct {
	d      *Direct
	id     int
	sender string
	// claimant is its name in the versions of keys that it has claimed.
	claimant string
	calls    *batching.Queue[*directCall]
	seq      uint64

	held       heldKeys
	guesses    guesses
	partitions map[int]*heldPartition
	decider    decider

	answered int // calls of the previous batch that did not come from DoAll

	// Memory of a batch, reused by the next one.
	scripts []*directScript
	reads   []*directCall
	writes  []*directCall
	fetches []*heldKey
	flat    []string
}

func newDirectWorker(d *Direct, id int) *directWorker {
	w := &directWorker{d: d, id: id, held: newHeldKeys(d.opt.Memory / d.opt.Workers),
		partitions: map[int]*heldPartition{}, claimant: rand.Text()[:10],
		sender: d.opt.Store.prefix.BatchKey(d.opt.Writer + ":" + strconv.Itoa(id))}
	w.calls = batching.New[*directCall](batching.Options{Waiting: maxWaiting, Ops: maxTogether,
		Bytes: maxKeys, Before: w.yieldToCallers})
	return w
}

// name returns the name under which the worker's batches are numbered in a cluster. Every worker
// counts its own batches.
func (w *directWorker) name() string { return fmt.Sprintf("d%s:%d", w.d.opt.Writer, w.id) }

func (w *directWorker) run(ctx context.Context) {
	w.calls.Run(nil, func(batch []*directCall) {
		w.answered = 0
		for _, c := range batch {
			if !c.inList {
				w.answered++
			}
		}
		w.serve(ctx, batch)
	})
}

// yieldToCallers yields to the callers that have just been answered. They are about to send their
// next operations, which can then go out together. With few callers there is nothing to gain, and
// while others keep the processors busy, getting one back can take long.
func (w *directWorker) yieldToCallers() {
	if w.answered >= manyAnswered {
		runtime.Gosched()
	}
}

// serve carries out a batch. Its timeout is shorter than the callers' timeout, so that they receive
// the batch's outcome before they give up.
func (w *directWorker) serve(ctx context.Context, batch []*directCall) {
	ctx, cancel := context.WithTimeout(ctx, w.d.opt.Timeout-w.d.opt.Timeout/10)
	defer cancel()
	if err := w.d.opt.Store.ensureReady(ctx); err != nil {
		for _, c := range batch {
			c.Finish(fmt.Errorf("%w: %w", twotier.ErrUnavailable, err))
		}
		return
	}
	for len(batch) > 0 {
		n := orderedPrefix(batch)
		w.writeThenRead(ctx, batch[:n])
		batch = batch[n:]
	}
}

// orderedPrefix returns how many calls of a batch can be carried out with all reads last: up to the
// first call that counts a key which an earlier call of a DoAll reads.
func orderedPrefix(batch []*directCall) int {
	reads := map[string]bool{}
	for i, c := range batch {
		for j := range c.keys {
			switch name := c.keys[j].name; {
			case !c.isRead() && reads[string(name)]:
				return i
			case c.isRead() && c.inList:
				reads[string(name)] = true
			}
		}
	}
	return len(batch)
}

// writeThenRead carries out the calls that count as one script, or one per partition in a cluster,
// and then the reads.
func (w *directWorker) writeThenRead(ctx context.Context, batch []*directCall) {
	w.reads, w.writes = w.reads[:0], w.writes[:0]
	for _, c := range batch {
		if c.isRead() {
			w.reads = append(w.reads, c)
		} else {
			w.writes = append(w.writes, c)
		}
	}
	w.writeAll(ctx, w.writes)
	eachBounded(w.reads, func(c *directCall) int {
		return mostFields(c.keys[0].ladder, c.keys[0].values)
	}, func(reads []*directCall) { w.readAll(ctx, reads) })
}

// writeAll carries out calls that count: it decides them by what it holds of their keys, and has
// Redis make the changes if the keys are still like that. Those whose keys are not are decided
// again. It overwrites the slice.
func (w *directWorker) writeAll(ctx context.Context, calls []*directCall) {
	for len(calls) > 0 {
		if ctx.Err() != nil {
			for _, c := range calls {
				c.Finish(errNotSent)
			}
			return
		}
		w.fetchAll(ctx, calls)
		now := w.d.opt.Now()
		for _, c := range calls {
			now = max(now, c.now)
		}
		groups := w.decideAll(calls, now)
		calls = calls[:0]
		if len(groups) == 0 {
			return
		}
		w.sendScripts(ctx, w.groupIntoScripts(groups, now), now)
		for _, g := range groups {
			for c := g.first; g.stale && c != nil; c = c.next {
				c.losses++
				calls = append(calls, c)
			}
		}
	}
}

// decideAll decides calls one after the other, and returns them in groups.
func (w *directWorker) decideAll(calls []*directCall, now int64) (groups []*directGroup) {
	for _, c := range calls {
		c.next = nil
		if err := w.unusable(c); err != nil {
			c.Finish(err)
			continue
		}
		g := &directGroup{first: c, last: c}
		groups = append(groups, g)
		for i := range c.keys {
			k := c.keys[i].held
			if k.group == nil {
				g.keys = append(g.keys, k)
			} else {
				g.join(k.group.root())
			}
			k.group = g
		}
		w.decider.decide(c, now)
	}
	return slices.DeleteFunc(groups, func(g *directGroup) bool { return g.into != nil })
}

// unusable returns why a call can't be decided, or nil. What could not be read is read again for
// the next call.
func (w *directWorker) unusable(c *directCall) (err error) {
	for i := range c.keys {
		if k := c.keys[i].held; k.err != nil {
			w.held.remove(k)
			err = cmp.Or(err, k.err)
		}
	}
	return err
}

// acquireAcrossPartitions acquires over several partitions of a cluster, one after the other. If
// one refuses, the earlier ones take back their counts. Others may see the temporary counts, which
// can cause a refusal but never let one too many through. Values can't be taken back, because they
// may have been seen before: their partitions come last, and only compare if an earlier one has
// refused. If one of several with values refuses, the values of those before it stay.
func (d *Direct) acquireAcrossPartitions(ctx context.Context, op *twotier.Op, ts int64,
	res *twotier.Result) (marks []fences.Mark, err error) {
	res.Reset()
	res.Allowed, res.Source = true, twotier.SourceRedis
	for range op.Checks {
		res.AddCheck()
	}
	counted := make([]bool, len(op.Checks))
	var failed error
	for _, checks := range d.groupByPartition(op) {
		var at []fences.Mark
		part := *op
		part.DryRun = op.DryRun || !res.Allowed && !op.CountsRefused(res) &&
			hasValues(op, checks)
		if at, failed = d.acquirePart(ctx, &part, ts, checks, counted, res); failed != nil {
			break
		}
		marks = append(marks, at...)
		for _, i := range checks {
			if part.DryRun && !op.DryRun && counted[i] {
				counted[i] = false
				uncount(op, i, res)
			}
		}
	}
	if failed == nil && res.Allowed {
		return marks, nil
	}
	keeps := failed == nil && op.CountsRefused(res)
	for i := range op.Checks {
		if keeps && !op.Checks[i].IsLease() || op.Checks[i].IsValues() {
			counted[i] = false
		}
		if counted[i] {
			uncount(op, i, res)
		}
	}
	if !op.DryRun {
		failed = errors.Join(failed, d.takeBack(ctx, op, ts, counted))
	}
	return marks, failed
}

// uncount subtracts the counts of a check from its result, of which values remain.
func uncount(op *twotier.Op, i int, res *twotier.Result) {
	r, n := &res.Checks[i], op.Checks[i].N+extra(op, i)
	r.TS = 0
	for j := range r.Limits {
		if lr := &r.Limits[j]; !op.Checks[i].IsValues() {
			lr.Count, lr.Lo, lr.Hi = lr.Count-n, lr.Lo-n, lr.Hi-n
		}
	}
}

// hasValues reports whether some of the given checks of an operation are about different values.
func hasValues(op *twotier.Op, checks []int) bool {
	return slices.ContainsFunc(checks, func(i int) bool { return op.Checks[i].IsValues() })
}

// groupByPartition groups the positions of an operation's checks by partition. A key and its bans
// share a partition, and so do all checks of a key, whose limits apply to the sum of their counts.
// Partitions with values come last.
func (d *Direct) groupByPartition(op *twotier.Op) (parts [][]int) {
	at := map[int]int{} // by partition, the position in parts
	for i := range op.Checks {
		c := &op.Checks[i]
		p := d.opt.Store.opt.Placement.Of(c.NS, c.Key)
		if _, known := at[p]; !known {
			at[p] = len(parts)
			parts = append(parts, nil)
		}
		parts[at[p]] = append(parts[at[p]], i)
	}
	seen := func(part []int) bool { return hasValues(op, part) }
	last := slices.DeleteFunc(slices.Clone(parts), func(part []int) bool { return !seen(part) })
	return append(slices.DeleteFunc(parts, seen), last...)
}

// acquirePart acquires the given checks of an operation, which share a partition. It adds their
// results to the operation's result, and records which of them have counted.
func (d *Direct) acquirePart(ctx context.Context, op *twotier.Op, ts int64, checks []int,
	counted []bool, res *twotier.Result) (marks []fences.Mark, err error) {
	one := twotier.Op{Kind: op.Kind, TS: op.TS, Ack: op.Ack, CountDenied: op.CountDenied,
		Charge: op.Charge, DryRun: op.DryRun}
	for _, i := range checks {
		one.Checks = append(one.Checks, op.Checks[i])
	}
	var part twotier.Result
	call := d.newCall(&one, ts, d.opt.Now())
	call.dated = true // all parts have one moment, at which their counts may be taken back
	if marks, err = d.submitAndWait(ctx, &one, call, &part, true); err != nil {
		return nil, err
	}
	res.Allowed = res.Allowed && part.Allowed
	if res.RetryAfter >= 0 && (part.RetryAfter < 0 || part.RetryAfter > res.RetryAfter) {
		res.RetryAfter = part.RetryAfter
	}
	counts := part.Allowed || one.CountsRefused(&part)
	for k, i := range checks {
		res.Checks[i] = part.Checks[k]
		counted[i] = counts && op.Checks[i].N > 0 && (part.Allowed || !op.Checks[i].IsLease())
	}
	return marks, nil
}

// takingBack returns the operation that takes back what a check has counted at a time.
func takingBack(c twotier.Check, ts int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Add, TS: ts, Ack: twotier.AckStore}
	if c.N, c.Limits = -c.N, nil; c.IsLease() {
		op.Kind, op.TS, c.Limits = twotier.Acquire, 0, []twotier.Limit{{Window: 1}}
	}
	op.Checks = []twotier.Check{c}
	return op
}

// takeBack takes back the counts of some checks of an acquire, even if ctx has ended. If one can't
// be taken back, it still takes back the others.
func (d *Direct) takeBack(ctx context.Context, op *twotier.Op, ts int64, counted []bool) error {
	var ops []twotier.Op
	for i, back := range op.Checks {
		if counted[i] {
			ops = append(ops, takingBack(back, ts))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.Timeout)
	defer cancel()
	var errs []error
	res := make([]twotier.Result, len(ops))
	d.DoAll(ctx, ops, res)
	for i := range res {
		if err := res[i].Err; err != nil {
			errs = append(errs, fmt.Errorf("%w: take back: %w", twotier.ErrUnknownOutcome, err))
		}
	}
	return errors.Join(errs...)
}
