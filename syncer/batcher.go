package syncer

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier/syncer/internal/room"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/internal/shifts"
	"twotier.dev/twotier/syncer/store"
)

// Bounds of one exchange with the store.
const (
	// maxBucketsAtOnce bounds the buckets in an exchange. Redis takes about a microsecond for each.
	// If an exchange took longer than RoundTimeout, it would be sent again and again.
	maxBucketsAtOnce = 32768
)

// batcher exchanges rounds with the store for its partitions: many rounds at a time, one exchange
// after the other. A partition that is due, by the clock or because a caller waits, stands in a
// queue, at most once. The queue is in the order of becoming due, so each partition is served once
// before another is served twice. Some batchers flush and others load, so that neither kind waits
// for the other.
type batcher struct {
	opt    *Options
	health *health
	report *reporter
	all    []partition  // the counter's
	parts  []*partition // the partitions it serves
	queue  int          // queueFlush or queueLoad
	// cut returns the round that a partition has to exchange now, or nil; later reports that there
	// will be one soon. settle processes the outcome and reports whether the partition has more to
	// exchange at once.
	cut    func(p *partition) (r *rounds.Round, later bool)
	settle func(p *partition, r *rounds.Round) (more bool)
	signal signal       // to look at the queue
	room   *room.Room   // always open if it loads
	shifts *shifts.Plan // used if it flushes
	linger *linger      // used if it flushes
	// down is set while every round fails. Partitions are then tried one at a time.
	down       bool
	congestion congestion
	width      readWidth
	later      []*partition // due again once their backoff has passed
	scratch    scratch

	mu         sync.Mutex
	due        []scheduled
	flushAgain bool // flush once more when the queue is empty
}

// newBatcher returns a batcher for one of the queues. It serves no partitions yet.
func newBatcher(opt *Options, all []partition, health *health, report *reporter,
	queue int) *batcher {
	l := &batcher{opt: opt, health: health, report: report, all: all, queue: queue,
		signal: newSignal(), congestion: congestion{maxRounds, maxRounds},
		width:  readWidth{timeout: opt.RoundTimeout, most: firstReads},
		linger: &linger{least: opt.FlushInterval}}
	if queue == queueLoad {
		l.cut, l.settle = (*partition).cutLoad, (*partition).settleLoad
		l.room = room.New(0, opt.RoundTimeout, l.flushSoon)
		return l
	}
	l.cut, l.settle = (*partition).cut, (*partition).settle
	l.room = room.New(opt.MaxLag, opt.RoundTimeout, l.flushSoon)
	l.linger.most = opt.longestLinger()
	return l
}

// assignShifts divides the partitions into shifts.
func (l *batcher) assignShifts() {
	l.shifts = shifts.New(len(l.parts), l.opt.FlushInterval, l.opt.VerifyInterval)
	for _, h := range l.shifts.All() {
		for _, p := range l.parts[h.From:h.To] {
			p.dirty.Shift = h
		}
	}
}

// runFlush exchanges flushing rounds. Each tick of the clock makes some of the partitions due.
func (l *batcher) runFlush(ctx context.Context) {
	timer := l.shifts.Start()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if h := l.shifts.Next(); h != nil {
				l.flushShift(h)
				l.exchangeDue(ctx)
			}
		case <-l.signal:
			l.exchangeDue(ctx)
		}
	}
}

// runLoad exchanges rounds that load keys for waiting operations. A failed load is tried again
// after a while.
func (l *batcher) runLoad(ctx context.Context) {
	timer := time.NewTimer(rounds.FirstBackoff)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			again := l.later
			l.later = nil
			for _, p := range again {
				l.schedule(p)
			}
		case <-l.signal:
			l.exchangeDue(ctx)
			if len(l.later) > 0 {
				timer.Reset(rounds.FirstBackoff)
			}
		}
	}
}

// flushShift queues the partitions that are due by the clock, and records when they are due next.
func (l *batcher) flushShift(h *shifts.Shift) {
	parts := l.parts[h.From:h.To]
	l.linger.adapt(l.room.IsFilling(), time.Now())
	if verify := l.flushAll(parts, l.linger.now()); verify && !l.down {
		l.queueVerifications()
	}
	if l.room.Waiting() > 0 {
		h.Rouse()
	}
	for _, p := range parts {
		if at, ever := p.nextDue(); ever {
			h.RouseAt(at)
		}
	}
}

// flushAll queues partitions to flush whatever is dirty, unless it lingers. It reports whether it
// is time to verify any of them.
func (l *batcher) flushAll(parts []*partition, linger time.Duration) (verify bool) {
	for _, p := range parts {
		now := time.Now()
		p.mu.Lock()
		if linger > 0 && p.lingers(linger/2+rand.N(linger/2+1), now) {
			p.mu.Unlock()
			continue
		}
		p.markSharedDirty(l.opt.Now())
		p.dirty.MakeDue()
		verify = verify || p.flushing.verifyWithin(0, now)
		p.mu.Unlock()
		l.enqueue(p, now)
	}
	return verify
}

// queueVerifications queues all partitions that have to be verified before long, because one is due
// now. From then on they are due at the same time, and one exchange verifies them all. Otherwise
// each would become due at a different moment.
func (l *batcher) queueVerifications() {
	for _, p := range l.parts {
		now := time.Now()
		p.mu.Lock()
		soon := p.flushing.verifyWithin(l.opt.VerifyInterval/2, now)
		if soon {
			p.store.ReportWithOthers()
		}
		p.mu.Unlock()
		if soon {
			l.enqueue(p, now)
		}
	}
}

// exchangeDue makes one exchange for the partitions at the front of the queue.
func (l *batcher) exchangeDue(ctx context.Context) {
	begun, longer := time.Now(), l.minOverdue()
	var rounds []*rounds.Round
	keys, buckets := 0, 0
	l.width.cut = 0
	for len(rounds) < l.mostRounds() && keys < l.mostKeys() && buckets < maxBucketsAtOnce &&
		!l.width.full() {
		p := l.next(longer)
		if p == nil {
			break
		}
		r, later := l.cut(p)
		if later {
			l.postpone(p)
		}
		if r != nil {
			rounds = append(rounds, r)
			keys += len(r.Keys)
			buckets += len(r.Buckets)
			l.width.add(r)
		}
	}
	taken := 0
	if len(rounds) > 0 {
		taken = l.exchange(ctx, rounds)
	}
	// This happens even without an exchange: an operation may have joined the line since the last
	// one, or granted room was not used.
	l.room.Record(taken, time.Since(begun))
	l.flushOnceIdle()
}

// mostRounds returns the maximum number of rounds in an exchange.
func (l *batcher) mostRounds() int {
	if l.queue == queueLoad && !l.health.down.Load() {
		return maxRounds
	}
	return l.congestion.width
}

// mostKeys returns the maximum number of keys in an exchange. The pace of loads is measured in
// buckets.
func (l *batcher) mostKeys() int {
	if l.queue == queueLoad {
		return room.MaxAtOnce
	}
	return l.room.MaxExchangeKeys()
}

// postpone queues a partition again after a while.
func (l *batcher) postpone(p *partition) {
	if !slices.Contains(l.later, p) {
		l.later = append(l.later, p)
	}
}

// exchange sends rounds and settles them. It returns how many keys the store has accepted.
func (l *batcher) exchange(ctx context.Context, rounds []*rounds.Round) (accepted int) {
	sent := l.scratch.sent[:0]
	for _, r := range rounds {
		r.Err = nil
		sent = append(sent, &r.Round)
	}
	l.scratch.sent = sent
	began := time.Now()
	try, cancel := context.WithTimeout(ctx, l.opt.RoundTimeout)
	l.opt.Store.Exchange(try, sent)
	cancel()
	err := rounds[0].Err // settled rounds are reused
	sum := tallyOf(rounds)
	l.width.record(sum.reads, time.Since(began))
	l.linger.record(sum.keys, time.Since(began))
	l.health.recordOutcomes(rounds, began)
	for _, r := range rounds {
		p := &l.all[r.Partition]
		p.dirty.Shift.Rouse() // the round may have to be sent again
		if l.settle(p, r) {
			l.scheduleSince(p, l.nextTurnSince(p))
		}
	}
	if sum.failed > 0 {
		l.room.RetryAll()
	}
	down := sum.failed == len(rounds)
	if l.down != down && l.queue == queueFlush {
		l.report.logStoreDown(down, err)
	}
	l.congestion.record(len(rounds), down)
	if l.down = down; !down || l.queue == queueLoad {
		l.signal.send()
	}
	return sum.accepted
}

// tally is what an exchange consisted of.
type tally struct {
	keys, accepted int // accepted by the store
	reads          int // in its answers
	failed         int // rounds
}

func tallyOf(sent []*rounds.Round) (t tally) {
	for _, r := range sent {
		t.keys += len(r.Keys)
		switch {
		case r.Err != nil:
			t.failed++
			continue
		case r.Seq != 0:
			t.accepted += len(r.Keys)
		}
		for i := range r.Parts {
			if k := &r.Parts[i]; k.Load {
				t.reads += rounds.ReadsOfKey + len(k.Loaded)
			}
		}
	}
	return t
}

// scratch is memory that a batcher reuses. Only the batcher's goroutine uses it.
type scratch struct {
	free    []*rounds.Round
	weighed []weighed
	sent    []*store.Round
}

// round returns an empty round of a partition.
func (s *scratch) round(b *ledger) *rounds.Round {
	n := len(s.free)
	if n == 0 {
		return b.newRound()
	}
	r := s.free[n-1]
	s.free = s.free[:n-1]
	r.Reset(b.id, b.outbox.Writer, b.mostKeys)
	return r
}

// recycle keeps a round's memory for reuse, unless it is unusually large.
func (s *scratch) recycle(b *ledger, r *rounds.Round) {
	if len(s.free) < maxRounds && cap(r.Keys) <= 4*b.mostKeys {
		s.free = append(s.free, r)
	}
}
