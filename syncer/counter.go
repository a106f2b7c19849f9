package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
)

// Counter is the two-tier counter. Make one with [New], start it with Open, stop it with Close.
type Counter struct {
	operations
	flushers  []*batcher
	loaders   []*batcher
	keyReader *keyReader

	// Shared by all partitions.
	clock  keys.Clock
	memory memory
	health health
	totals totals
	report reporter
	// borrowingPaused: nothing is borrowed.
	borrowingPaused atomic.Bool

	stop context.CancelFunc
	done sync.WaitGroup
	once sync.Once
	err  error
}

// New checks the options and returns a counter that is not running yet.
func New(opt Options) (*Counter, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	c := &Counter{operations: operations{opt: opt},
		clock: keys.Clock{Now: opt.Now, Opened: opt.Now()}}
	c.report.log = opt.Logger
	c.namespaces = keys.NewNamespaces()
	if err := opt.addNamespaces(&c.namespaces); err != nil {
		return nil, err
	}
	c.placement, c.parts = opt.Placement, make([]partition, opt.Placement.Partitions)
	c.memory.init(&c.directory, c.clock, &c.opt)
	c.health = health{parts: c.parts, enough: min(enoughSilent, len(c.parts)),
		timeout: c.opt.RoundTimeout, silent: map[int]bool{}}
	c.keyReader = newKeyReader(&c.opt)
	for range min(opt.Exchanges, len(c.parts)) {
		c.flushers = append(c.flushers, newBatcher(&c.opt, c.parts, &c.health, &c.report,
			queueFlush))
		c.loaders = append(c.loaders, newBatcher(&c.opt, c.parts, &c.health, &c.report,
			queueLoad))
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.flusher, p.loader = c.flushers[i%len(c.flushers)], c.loaders[i%len(c.flushers)]
		p.flusher.parts = append(p.flusher.parts, p)
		c.initPartition(i)
	}
	for _, l := range c.flushers {
		l.assignShifts()
	}
	c.calls.New = func() any { return &call{pulse: c.opt.Pulse} }
	return c, nil
}

// initPartition initializes a partition whose batchers are set.
func (c *Counter) initPartition(id int) {
	p := &c.parts[id]
	p.id, p.mostKeys, p.outbox.Writer = id, c.opt.MaxRoundKeys, c.opt.Writer
	p.keys = keys.New(c.memory.pool, &c.namespaces, c.clock)
	p.keys.NoStore = c.opt.Store == nil
	p.owed.room, p.resets = p.flusher.room, map[string]int{}
	if c.opt.NotOwner {
		p.ownership = notOwned
	}
	p.memory, p.health, p.readWithin = &c.memory, &c.health, c.opt.maxReportAge()
	p.keyReader, p.absenceAge = c.keyReader, c.opt.VerifyInterval
	p.keys.Stored, p.listing = keys.NewStored(c.memory.lists), &listing{}
	if c.keyReader != nil {
		p.listing.state = listUnread
	}
	p.flushing = flushing{ledger: &p.ledger, loads: &p.loads, scratch: &p.flusher.scratch,
		budget: &p.guarded, opt: &c.opt, totals: &c.totals}
	p.loads = loading{ledger: &p.ledger, scratch: &p.loader.scratch, width: &p.loader.width,
		budget: &p.guarded, totals: &c.totals}
	p.restoration = restoration{ledger: &p.ledger, loads: &p.loads, totals: &c.totals,
		report: &c.report}
	p.handoff = handoff{ledger: &p.ledger, flushing: &p.flushing, loads: &p.loads,
		restoration: &p.restoration, budget: &p.guarded}
}

// Open starts the goroutines that flush, load and evict. They run until Close, whatever happens to
// ctx.
func (c *Counter) Open(ctx context.Context) error {
	if c.stop != nil {
		return errors.New("syncer: opened twice")
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for i := range c.flushers {
		if c.opt.Store == nil {
			break
		}
		c.done.Go(func() { c.flushers[i].runFlush(run) })
		c.done.Go(func() { c.loaders[i].runLoad(run) })
	}
	c.done.Go(func() { c.memory.runSweep(run) })
	if c.keyReader != nil {
		c.done.Go(func() { c.keyReader.run(run) })
	}
	return nil
}

// Drain refuses further counting, except for confirmed reservations. Once the pending counts are
// flushed, no new ones appear. Reads are still answered.
func (c *Counter) Drain() {
	c.draining.Store(true)
	for p := range c.locked() {
		p.phase = max(p.phase, draining)
	}
	for _, l := range c.flushers {
		l.room.Close()
	}
}

// Close refuses new operations, flushes until nothing is pending or ctx is done, and stops every
// goroutine. The error reports how much the store lacks. Further calls return the same error.
func (c *Counter) Close(ctx context.Context) error {
	c.once.Do(func() {
		c.refuseAll()
		if c.stop == nil {
			return
		}
		c.err = c.Flush(ctx)
		if buckets := c.pendingBuckets(); buckets > 0 {
			events, keys := int64(0), 0
			c.EachUnflushed(func(_, _ []byte, n int64) { events, keys = events+n, keys+1 })
			c.err = fmt.Errorf(
				"close: %w: the store has not acknowledged %d events of %d keys, in %d buckets",
				twotier.ErrUnknownOutcome, events, keys, buckets)
		}
		c.stop()
		c.done.Wait()
		for i := range c.parts {
			c.parts[i].endAllWaits()
		}
	})
	return c.err
}

// refuseAll makes every operation fail from now on, including waiting ones.
func (c *Counter) refuseAll() {
	c.closed.Store(true)
	c.Drain()
	for p := range c.locked() {
		p.phase = max(p.phase, closed)
		p.unshareAll()
		p.settled.wake()
	}
}

// Flush returns once everything counted before the call is acknowledged or handed over, or when ctx
// is done; then the error wraps ErrUnknownOutcome and reports how much is pending.
func (c *Counter) Flush(ctx context.Context) error {
	for i := range c.parts {
		p := &c.parts[i]
		_, err := p.awaitAck(ctx, p.lastTicket())
		if errors.Is(err, errHandedOff) {
			_, err = p.awaitAck(ctx, 0) // wait for rounds taken over from other counters since then
		}
		if err != nil {
			return fmt.Errorf("flush: %w: the store has not acknowledged %d buckets",
				twotier.ErrUnknownOutcome, c.pendingBuckets())
		}
	}
	return nil
}

func (c *Counter) pendingBuckets() (n int64) {
	if c.opt.Store == nil {
		return 0
	}
	for p := range c.locked() {
		n += p.keys.PendingBuckets
	}
	return n
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
		MaxLag: c.opt.MaxLag}
	for _, l := range c.flushers {
		r := l.room.Stats()
		s.BehindTotal += r.Refused
		s.WaitingForRoom += r.Waiting
	}
	for p := range c.locked() {
		s.Keys += int64(p.keys.Len())
		if c.opt.Store != nil {
			s.PendingBuckets += p.keys.PendingBuckets
			s.DroppedExpiredTotal += p.keys.Expired
		}
		s.MemoryBytes += 8 * int64(p.keys.Words()+p.keys.Stored.Words())
		s.EvictedTotal += p.keys.Evicted
		s.UnreadTotal += p.unread
		s.ListedKeys += int64(p.keys.Stored.Len())
		if p.degraded() {
			s.DegradedPartitions++
		}
		if since := p.unflushedSince(); !since.IsZero() {
			s.UnflushedAge = max(s.UnflushedAge, time.Since(since))
		}
	}
	return s
}

// MaxStaleness bounds the age of the information behind a decision made in place of, or along with,
// another counter that has as much to flush: one flush interval, longer under load, until the other
// has flushed, and up to two until this one reads its counts.
func (c *Counter) MaxStaleness() time.Duration {
	linger := time.Duration(0)
	for _, l := range c.flushers {
		linger = max(linger, l.linger.now())
	}
	return c.opt.FlushInterval + linger + c.opt.maxReportAge()
}
