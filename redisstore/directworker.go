package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
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
