package syncer

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one exchange with the store.
const (
	maxRounds     = 256
	maxKeysAtOnce = 2048
	// maxBuckets and maxBucketsAtOnce bound the buckets in a round and in an exchange. Redis takes about a microsecond for
	// each, and must be done within RoundTimeout, or the same is sent again and again.
	maxBuckets       = 8192
	maxBucketsAtOnce = 32768
	firstBackoff     = 25 * time.Millisecond
	longestBackoff   = 2 * time.Second
	parkedPause      = 5 * time.Second
)

// lane exchanges rounds with the store for its partitions, one exchange at a time: every flush interval for those that are
// dirty, at once for those that somebody waits for.
type lane struct {
	c      *Counter
	id     int
	parts  []*partition
	signal chan struct{}
	// down is set while nothing gets through: then a single partition is tried at a time.
	down atomic.Bool
	free []*Round

	mu     sync.Mutex
	kicked []*partition
}

// kick asks for a round of the partition as soon as the present exchange is over.
func (l *lane) kick(p *partition) {
	l.mu.Lock()
	if !p.kicked {
		p.kicked = true
		l.kicked = append(l.kicked, p)
	}
	l.mu.Unlock()
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

func (l *lane) takeKicked(due []*partition) []*partition {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.kicked {
		p.kicked = false
	}
	due = append(due, l.kicked...)
	l.kicked = l.kicked[:0]
	return due
}

func (l *lane) run(ctx context.Context) {
	shifts := l.shifts()
	timer := time.NewTimer(l.jitter() / time.Duration(shifts))
	defer timer.Stop()
	var due []*partition
	for shift := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			parts := l.parts[shift*len(l.parts)/shifts : (shift+1)*len(l.parts)/shifts]
			shift = (shift + 1) % shifts
			due = append(l.takeKicked(due[:0]), parts...)
			l.flushAll(parts)
			timer.Reset(l.jitter() / time.Duration(shifts))
		case <-l.signal:
			due = l.takeKicked(due[:0])
		}
		l.work(ctx, due)
	}
}

// Every partition is flushed once in an interval, but not all at the same time: who waits for a key to be loaded would wait for that.
const (
	mostShifts    = 8
	shortestShift = 5 * time.Millisecond
)

// shifts is in how many parts the lane's partitions are flushed.
func (l *lane) shifts() int {
	return max(1, min(mostShifts, len(l.parts), int(l.c.opt.FlushInterval/shortestShift)))
}

// flushAll has partitions flush what is dirty.
func (l *lane) flushAll(parts []*partition) {
	for _, p := range parts {
		p.mu.Lock()
		p.flushDue = true
		l.c.takeShared(p)
		p.mu.Unlock()
	}
}

// jitter is the flush interval, give or take a tenth, so that nodes don't flush in step.
func (l *lane) jitter() time.Duration {
	i := l.c.opt.FlushInterval
	return i - i/10 + rand.N(i/5+1)
}

// work exchanges rounds until the partitions that are due have nothing more to say. While it is at it, others may be
// kicked: they are served in between.
func (l *lane) work(ctx context.Context, due []*partition) {
	var rounds []*Round
	for len(due) > 0 && ctx.Err() == nil {
		rounds = rounds[:0]
		keys, buckets := 0, 0
		for len(due) > 0 && len(rounds) < maxRounds && keys < maxKeysAtOnce && buckets < maxBucketsAtOnce && (!l.down.Load() || len(rounds) == 0) {
			p := due[0]
			due = due[1:]
			if r := l.c.cutRound(p); r != nil {
				rounds = append(rounds, r)
				keys += len(r.Keys)
				buckets += len(r.buckets)
			}
		}
		if len(rounds) == 0 {
			return
		}
		due = l.exchange(ctx, rounds, due)
		if kicked := l.takeKicked(nil); len(kicked) > 0 {
			due = append(kicked, due...) // somebody waits for those
		}
	}
}

// exchange sends rounds and settles them. It returns due with those partitions appended that have more to send.
func (l *lane) exchange(ctx context.Context, rounds []*Round, due []*partition) []*partition {
	for _, r := range rounds {
		r.Err = nil
	}
	try, cancel := context.WithTimeout(ctx, l.c.opt.RoundTimeout)
	l.c.opt.Store.Exchange(try, rounds)
	cancel()
	failed := 0
	for _, r := range rounds {
		if r.Err != nil {
			failed++
		}
		if p := &l.c.parts[r.Partition]; l.c.settle(p, r) {
			due = append(due, p)
		}
	}
	down := failed == len(rounds)
	if l.down.Swap(down) != down {
		l.c.logStore(down, rounds[0].Err)
	}
	if down {
		return nil
	}
	return due
}

// logStore logs when the first lane loses the store, and when the last one has it back.
func (c *Counter) logStore(down bool, err error) {
	switch {
	case down && c.lanesDown.Add(1) == 1:
		c.opt.Logger.Warn("the store can't be reached: answering from memory", "error", err)
	case !down && c.lanesDown.Add(-1) == 0:
		c.opt.Logger.Info("the store can be reached again")
	}
}

// lossPause is how long one loss is the news: the partitions find out one after the other.
const lossPause = 10 * time.Second

func (c *Counter) logLoss(partition int) {
	now, last := time.Now().UnixNano(), c.lossLogged.Load()
	if now-last > int64(lossPause) && c.lossLogged.CompareAndSwap(last, now) {
		c.opt.Logger.Warn("the store has lost counts that it had acknowledged: publishing what memory knows", "first_partition", partition)
	}
}

func (l *lane) newRound(p *partition) *Round {
	if n := len(l.free); n > 0 {
		r := l.free[n-1]
		l.free = l.free[:n-1]
		r.reset()
		r.Partition, r.Writer = p.id, p.writer
		return r
	}
	return &Round{Partition: p.id, Writer: p.writer}
}

// recycle keeps a round's memory for another, unless it is unusually large.
func (l *lane) recycle(r *Round) {
	if len(l.free) < maxRounds && cap(r.Keys) <= 4*l.c.opt.MaxRoundKeys {
		l.free = append(l.free, r)
	}
}
