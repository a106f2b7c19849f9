package simtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ledger is what clients were told.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
}

// account is what is known of one key.
type account struct {
	acknowledged, unknown int64
	lost                  int64 // at most so much was in the memory of processes that were killed
	admitted              int64 // of what is acknowledged, by acquires
}

func (l *ledger) account(key string) *account {
	a := l.keys[key]
	if a == nil {
		a = &account{}
		l.keys[key] = a
	}
	return a
}

func (l *ledger) acknowledge(key string, n int64, acquired bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(key)
	a.acknowledged += n
	if acquired {
		a.admitted += n
	}
}

func (l *ledger) doubt(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(key).unknown += n
}

func (l *ledger) lose(key string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(key).lost += n
}

func (l *ledger) copy(key string) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.account(key)
}

func (l *ledger) names() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.keys {
		list = append(list, key)
	}
	return list
}

// totals sum up schedules.
type totals struct {
	schedules, acknowledged, unknown, refused, lost, excess atomic.Int64
	overshot, shared, near                                  atomic.Int64
}

func (s *totals) add(o outcome) {
	s.schedules.Add(1)
	s.acknowledged.Add(o.acknowledged)
	s.unknown.Add(o.unknown)
	s.refused.Add(o.refused)
	s.lost.Add(o.lost)
	s.excess.Add(o.excess)
	s.shared.Add(o.shared)
	s.near.Add(o.near)
	if o.excess > 0 {
		s.overshot.Add(1)
	}
}

func (s *totals) String() string {
	return fmt.Sprintf("%d schedules: %d counts acknowledged, %d of unknown outcome, %d operations failed; %d counts lost with killed processes; "+
		"%d admitted over a limit in %d schedules with splits, crashes or hot keys; %d answers about hot keys, %d remembered refusals",
		s.schedules.Load(), s.acknowledged.Load(), s.unknown.Load(), s.refused.Load(), s.lost.Load(), s.excess.Load(), s.overshot.Load(),
		s.shared.Load(), s.near.Load())
}

// outcome is what came out of one schedule.
type outcome struct{ acknowledged, unknown, refused, lost, excess, shared, near int64 }

// check holds the ledger against what Redis and all nodes say.
func (w *world) check() (o outcome) {
	for _, key := range w.ledger.names() {
		a := w.ledger.copy(key)
		r := w.stored(key)
		if r > a.acknowledged+a.unknown {
			w.t.Errorf("%s: Redis has %d, but only %d were acknowledged and %d in doubt", key, r, a.acknowledged, a.unknown)
		}
		if r < a.acknowledged-a.lost {
			w.t.Errorf("%s: Redis has %d, but %d were acknowledged, and at most %d lost with killed processes", key, r, a.acknowledged, a.lost)
		}
		for _, p := range w.alive() {
			if n, err := p.read(key); err != nil || n != r {
				w.t.Errorf("%s: node %s says %d (%v), Redis %d", key, p.id, n, err, r)
			}
		}
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", key, w.journal.about(key))
			return o
		}
		o.acknowledged += a.acknowledged
		o.unknown += a.unknown
		o.lost += max(0, a.acknowledged-r)
		if excess := a.admitted - w.limitOf(key); w.limitOf(key) > 0 && excess > 0 {
			o.excess += excess
			if w.plan.exact {
				w.t.Errorf("%s: %d admitted, the limit is %d\n%s", key, a.admitted, w.limitOf(key), w.journal.about(key))
			}
		}
	}
	o.refused, o.shared, o.near = w.refused.Load(), w.shared.Load(), w.near.Load()
	return o
}

// stored is what Redis has of a key.
func (w *world) stored(key string) (n int64) {
	for _, b := range w.redis.Get(w.partition(key), nil, []byte(key)) {
		if b.Level == 2 {
			n += b.N
		}
	}
	return n
}

// settle waits until nothing is pending, everybody owns what is theirs, and owners have heard what others counted in their place.
func (w *world) settle(t *testing.T) {
	if !w.until(patience, func() bool {
		for _, p := range w.alive() {
			s := p.node.Stats()
			if s.Counter.PendingBuckets > 0 || s.Members != len(w.alive()) || s.SpreadKeys+s.LeasedKeys > 0 {
				return false
			}
		}
		return w.owned() == w.plan.partitions
	}) {
		for _, p := range w.alive() {
			s := p.node.Stats()
			t.Errorf("node %s does not settle: %d buckets pending, %d partitions held, %d members, mode %s", p.id, s.Counter.PendingBuckets, s.Held, s.Members, p.node.Mode())
		}
	}
	time.Sleep(3 * time.Second)
}
