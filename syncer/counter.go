package syncer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Counter is the two-tier counter. Make one with [New], start it with Open, stop it with Close.
type Counter struct {
	opt        Options
	parts      []partition
	flushers   []*batcher
	loaders    []*batcher
	health     health
	namespaces namespaces
	clock      clock
	memory     memory
	durability durability
	calls      sync.Pool

	reservations reservations

	draining atomic.Bool // nothing more is counted, but for what was promised
	closed   atomic.Bool // nothing more is counted or read
	stopped  atomic.Bool // nothing more is settled
	stop     context.CancelFunc
	done     sync.WaitGroup
	once     sync.Once
	err      error

	totals totals
	report reporter
}

// totals is what a counter has done since it was opened, see [Stats].
type totals struct {
	batchesOK, batchesUnknown, batchesRefused      atomic.Int64
	flushedBuckets, loads, losses, badKeys, behind atomic.Int64
}

// New checks the options and returns a counter that is not running yet.
func New(opt Options) (*Counter, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	c := &Counter{opt: opt, clock: clock{now: opt.Now, opened: opt.Now()}}
	c.durability = durability{opt.Store, opt.Ack, opt.Placement}
	c.report.log = opt.Logger
	c.reservations.byID = map[string]*reservation{}
	if err := c.namespaces.init(&opt); err != nil {
		return nil, err
	}
	c.parts = make([]partition, opt.Placement.Partitions)
	c.memory.init(c)
	c.health = health{enough: min(enoughSilent, len(c.parts)), silent: map[int]bool{}}
	for range min(opt.Exchanges, len(c.parts)) {
		c.flushers = append(c.flushers, c.newBatcher(queueFlush, opt.MaxLag))
		c.loaders = append(c.loaders, c.newBatcher(queueLoad, 0))
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.flusher, p.loader = c.flushers[i%len(c.flushers)], c.loaders[i%len(c.flushers)]
		p.flusher.parts = append(p.flusher.parts, p)
		p.init(i, c)
	}
	for _, l := range c.flushers {
		l.shifts = newShifts(l.parts, opt.FlushInterval, opt.VerifyInterval)
	}
	c.calls.New = func() any { return new(call) }
	return c, nil
}

func newWriter() string { return rand.Text()[:12] }

// newNonce tells rounds apart that were cut under one name and number. It must not come from a
// generator whose state is copied along with the process.
func newNonce() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Writer is the name under which the store knows this counter.
func (c *Counter) Writer() string { return c.opt.Writer }

// Open starts the goroutines that flush, load and evict. They stop at Close, not with ctx.
func (c *Counter) Open(ctx context.Context) error {
	if c.stop != nil {
		return errors.New("syncer: opened twice")
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for i := range c.flushers {
		c.done.Go(func() { c.flushers[i].runFlush(run) })
		c.done.Go(func() { c.loaders[i].runLoad(run) })
	}
	c.done.Go(func() { c.memory.runSweep(run) })
	return nil
}

// Drain refuses what would be counted from now on, but for reservations that are confirmed: nothing
// is pending any more once what is has been flushed. What only reads is answered on.
func (c *Counter) Drain() {
	c.draining.Store(true)
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		p.draining = true
		p.mu.Unlock()
	}
	for _, l := range c.flushers {
		l.room.retryAll()
	}
}

// Close refuses new operations, flushes until nothing is pending or ctx is done, and stops every
// goroutine. The error says how much the store did not take. Further calls return the same.
func (c *Counter) Close(ctx context.Context) error {
	c.once.Do(func() {
		c.refuse()
		if c.stop == nil {
			return
		}
		c.err = c.Flush(ctx)
		if l := c.left(); l.buckets > 0 {
			c.err = fmt.Errorf(
				"close: %w: the store has not acknowledged %d events of %d keys, in %d buckets",
				ErrUnknownOutcome, l.events, l.keys, l.buckets)
		}
		c.stop()
		c.done.Wait()
		c.stopped.Store(true)
		c.wakeAll()
	})
	return c.err
}

// refuse lets no operation count from now on, nor wait to.
func (c *Counter) refuse() {
	c.closed.Store(true)
	c.Drain()
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		p.closed = true
		p.settled.wake()
		p.mu.Unlock()
	}
}

// Flush returns once everything that was counted before the call is acknowledged, or handed over,
// or ctx is done; then the error wraps ErrUnknownOutcome and says how much is pending.
func (c *Counter) Flush(ctx context.Context) error {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		ticket := p.dirty.lastTicket
		p.mu.Unlock()
		_, err := c.commit(ctx, p, ticket)
		if errors.Is(err, errHandedOff) {
			_, err = c.commit(ctx, p, 0) // what was taken over from others since then
		}
		if err != nil {
			return fmt.Errorf("flush: %w: the store has not acknowledged %d buckets",
				ErrUnknownOutcome, c.pendingBuckets())
		}
	}
	return nil
}

// left is what the store does not have.
type left struct{ events, keys, buckets int64 }

func (c *Counter) left() (l left) {
	if l.buckets = c.pendingBuckets(); l.buckets == 0 {
		return l
	}
	c.Unflushed(func(_, _ []byte, n int64) {
		l.events += n
		l.keys++
	})
	return l
}

func (c *Counter) pendingBuckets() (n int64) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += p.keys.pendingBuckets
		p.mu.Unlock()
	}
	return n
}

// commit waits until all tickets up to this one are acknowledged, and returns what was acknowledged
// last.
func (c *Counter) commit(ctx context.Context, p *partition, ticket uint64) (Mark, error) {
	return c.commitIf(ctx, p, ticket, func() bool { return true })
}

// commitIf is commit, but returns errFailing when it would have to wait although a condition, which
// is looked at under the partition's lock, does not hold.
func (c *Counter) commitIf(ctx context.Context, p *partition, ticket uint64,
	worthwhile func() bool) (Mark, error) {
	for {
		p.mu.Lock()
		if p.dirty.handedOff(ticket) {
			p.mu.Unlock()
			return Mark{}, errHandedOff
		}
		// What was taken over from others draws no tickets. It goes before all else.
		if p.dirty.ackedTicket >= ticket && p.outbox.importsSent() {
			mark := p.outbox.mark
			p.mu.Unlock()
			return mark, nil
		}
		if c.stopped.Load() {
			p.mu.Unlock()
			return Mark{}, errStopped
		}
		if !worthwhile() {
			p.mu.Unlock()
			return Mark{}, errFailing
		}
		settled := p.settled.wait()
		p.dirty.due = true
		p.mu.Unlock()
		p.flusher.schedule(p)
		select {
		case <-settled:
		case <-ctx.Done():
			return Mark{},
				fmt.Errorf("%w: counted in memory, but the store has not acknowledged it in time",
					ErrUnknownOutcome)
		}
	}
}

// Stats returns a snapshot of the counter's figures.
func (c *Counter) Stats() Stats {
	s := Stats{
		MaxMemory:           c.opt.MaxMemory,
		BatchesOKTotal:      c.totals.batchesOK.Load(),
		BatchesUnknownTotal: c.totals.batchesUnknown.Load(),
		BatchesRefusedTotal: c.totals.batchesRefused.Load(),
		FlushedBucketsTotal: c.totals.flushedBuckets.Load(),
		MemoryBytes:         c.memory.pool.IdleBytes(), LoadsTotal: c.totals.loads.Load(),
		LossesTotal: c.totals.losses.Load(), BadKeysTotal: c.totals.badKeys.Load(),
		MaxLag: c.opt.MaxLag, BehindTotal: c.totals.behind.Load(),
	}
	for _, l := range c.flushers {
		s.WaitingForRoom += l.room.waiting[knownKey].Load() + l.room.waiting[newKey].Load()
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		s.Keys += int64(p.keys.table.Len())
		s.PendingBuckets += p.keys.pendingBuckets
		s.MemoryBytes += int64(p.keys.bytes())
		s.EvictedTotal += p.keys.evicted
		s.DroppedExpiredTotal += p.keys.expired
		if p.degraded() {
			s.DegradedPartitions++
		}
		if since := p.unflushedSince(); !since.IsZero() {
			s.UnflushedAge = max(s.UnflushedAge, time.Since(since))
		}
		p.mu.Unlock()
	}
	return s
}
