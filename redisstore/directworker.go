package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// Bounds of a worker.
const (
	maxWaiting   = 16_384
	maxTogether  = 256
	maxLimits    = 4096   // limits and checks in a batch
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
	calls  *batching.Queue[*directCall]
	seq    uint64

	answered int // calls of the previous batch that did not come from DoAll

	// Memory of a batch, reused by the next one.
	scripts []*directScript
	reads   []*directCall
	writes  []*directCall
}

func newDirectWorker(d *Direct, id int) *directWorker {
	w := &directWorker{d: d, id: id,
		sender: d.opt.Store.prefix.BatchKey(d.opt.Writer + ":" + strconv.Itoa(id))}
	w.calls = batching.New[*directCall](batching.Options{Waiting: maxWaiting, Ops: maxTogether,
		Bytes: maxLimits, Before: w.yieldToCallers})
	return w
}

func (w *directWorker) run(ctx context.Context) {
	w.calls.Run(nil, func(batch []*directCall) {
		w.answered = 0
		for _, c := range batch {
			if c.list == nil {
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
	var reads map[string]bool
	for i, c := range batch {
		if c.isRead() && c.list == nil || !c.isRead() && reads == nil {
			continue
		}
		for j := range c.checks {
			name := string(c.hashName(j))
			if !c.isRead() && reads[name] {
				return i
			}
			if c.isRead() {
				if reads == nil {
					reads = map[string]bool{}
				}
				reads[name] = true
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
	for reads := w.reads; len(reads) > 0; {
		n := pipelineLen(reads)
		w.readAll(ctx, reads[:n])
		reads = reads[n:]
	}
}

// pipelineLen returns how many reads may be sent together. Redis may serve nobody else until it
// has carried out the part of a pipeline that it has received.
func pipelineLen(reads []*directCall) int {
	buckets := 0
	for i, c := range reads {
		if buckets += c.checks[0].ladder.MaxCells(); buckets > maxBuckets && i > 0 {
			return i
		}
	}
	return len(reads)
}

// writeAll carries out calls that count, in as many scripts as needed. It overwrites the slice.
func (w *directWorker) writeAll(ctx context.Context, calls []*directCall) {
	for len(calls) > 0 {
		scripts := w.groupIntoScripts(calls)
		w.sendScripts(ctx, scripts)
		calls = calls[:0]
		for _, g := range scripts {
			calls = append(calls, g.left...)
		}
		calls = slices.DeleteFunc(calls, func(c *directCall) bool {
			divide := c.divide // once it is finished, the call belongs to another operation
			if divide {
				w.acquireInHalves(ctx, c)
			}
			return divide
		})
	}
}

// groupIntoScripts makes one script call of calls that count, or one per partition in a cluster.
func (w *directWorker) groupIntoScripts(calls []*directCall) []*directScript {
	w.seq++
	used := 0
	next := func(sender string) *directScript {
		if used == len(w.scripts) {
			w.scripts = append(w.scripts, newDirectScript(w.d.opt.Store, w.d.steps))
		}
		s := w.scripts[used]
		used++
		s.startFor(sender)
		return s
	}
	if !w.d.opt.Store.conn.Cluster {
		s := next(w.sender)
		s.calls = append(s.calls, calls...)
	} else {
		of := map[int]*directScript{}
		for _, c := range calls {
			partition := c.partition()
			s := of[partition]
			if s == nil {
				s = next(w.d.opt.Store.prefix.WriterKey(partition, "d"+w.d.opt.Writer))
				of[partition] = s
			}
			s.calls = append(s.calls, c)
		}
	}
	for _, s := range w.scripts[:used] {
		s.encode(w.seq)
		for _, c := range s.calls {
			c.mark = fences.Mark{Key: s.sender, Seq: w.seq}
		}
	}
	return w.scripts[:used]
}

func (w *directWorker) readAll(ctx context.Context, reads []*directCall) {
	s := w.d.opt.Store
	pipe := s.conn.Client.Pipeline()
	cmds := make([]*redis.Cmd, len(reads))
	for i, c := range reads {
		cmds[i] = pipe.Do(ctx, s.readVerb(), string(c.hashName(0)))
	}
	s.conn.RoundTrips.Add(1)
	scripts.Execute(ctx, pipe)
	for i, c := range reads {
		if err := cmds[i].Err(); err != nil {
			if !scripts.IsRefusal(err) {
				scripts.ReloadSlots(ctx, s.conn.Client)
			}
			s.setFailedUnlessReply(err)
			c.Finish(fmt.Errorf("%w: %w", twotier.ErrUnavailable, err))
			continue
		}
		s.conn.SetFailed(nil)
		c.flat, _ = cmds[i].Val().([]any)
		c.Finish(nil)
	}
}

// sendScripts sends scripts until each is answered or time is up. A script without an answer is
// sent again unchanged under the same sequence: if it was applied, Redis only returns its
// decisions.
func (w *directWorker) sendScripts(ctx context.Context, open []*directScript) {
	s := w.d.opt.Store
	began := time.Now()
	var send []*scripts.Call
	open = slices.Clone(open)
	for gap := directMinGap; ; gap = min(2*gap, directMaxGap) {
		send = send[:0]
		for _, g := range open {
			send = append(send, &g.call)
		}
		s.runPipeline(ctx, send)
		left := open[:0]
		for _, g := range open {
			if err := g.call.Cmd.Err(); err != nil {
				if ctx.Err() == nil && w.shouldResend(g.call.MayHaveRun, err, time.Since(began)) {
					left = append(left, g)
					continue
				}
			}
			s.deliver(g)
		}
		if open = left; len(open) == 0 {
			return
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			for _, g := range open {
				s.deliver(g)
			}
			return
		}
	}
}

// shouldResend decides whether a failed script is sent again. A script that was certainly not
// applied is given up soon, because no outcome is in doubt. In a cluster it is not, because a slot
// that moves or a replica that takes over may need the time.
func (w *directWorker) shouldResend(mayHaveRun bool, err error, spent time.Duration) bool {
	if scripts.IsRefusal(err) && !scripts.IsTransient(err) {
		return false
	}
	return mayHaveRun || w.d.opt.Store.conn.Cluster || spent < w.d.opt.Timeout/4
}

// deliver hands every call of a script its answer, or the error that they all share. Calls that the
// script left have no answer yet.
func (s *Store) deliver(g *directScript) {
	reply, err := g.call.Cmd.Text()
	if err == nil {
		err = g.decode(reply)
	}
	if err == nil {
		s.conn.SetFailed(nil)
	} else {
		s.setFailedUnlessReply(err)
		if err = g.call.Classify(err); errors.Is(err, syncer.ErrNotApplied) {
			err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
		}
	}
	if err != nil {
		g.left = g.left[:0]
	}
	left := 0
	for _, c := range g.calls {
		if left < len(g.left) && g.left[left] == c {
			left++
			continue
		}
		c.Finish(err)
	}
}

// setFailedUnlessReply takes an error as a sign that Redis is down, unless Redis reports it about a
// single key.
func (s *Store) setFailedUnlessReply(err error) {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.conn.SetFailed(err)
	}
}
