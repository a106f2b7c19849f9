package simtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// ledger records the answers of clients.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
}

// account holds the sums for one key.
type account struct {
	acknowledged int64
	taken        int64 // part of acknowledged that was taken back
	// more may have been counted, and less may have been taken back: their outcomes are unknown.
	more, less int64
	open       []doubt // the parts of more and less
	// lost bounds the counts that were only in the memory of killed processes, or in a Redis that
	// lost them.
	lost int64
	// withheld bounds the unflushed counts of suspended processes.
	withheld  int64
	kept      int64 // bounds the counts taken back that reappeared in the same way
	verdicts  []verdict
	reset     time.Time // when the latest reset was acknowledged
	before    int64     // bounds the counts at that time
	resetting bool      // a reset may have been executed, or may still be
	over      bool      // all deadlines had passed, and no process had counted it
}

// doubt is a count of unknown outcome, negative if it takes back, which may be carried out until
// then.
type doubt struct {
	n     int64
	until time.Time
}

// of calls fn with the account of a key.
func (l *ledger) of(key string, fn func(a *account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.keys[key]
	if a == nil {
		a = &account{}
		l.keys[key] = a
	}
	fn(a)
}

// acknowledge records an acknowledged count. A node takes back at most the counts that it sees,
// which may be less than n unless it sees everything that was counted.
func (l *ledger) acknowledge(key string, n int64, sees bool) {
	l.of(key, func(a *account) {
		switch {
		case n > 0 || sees:
			a.acknowledged += n
			a.taken += max(0, -n)
		default:
			a.less -= n
		}
	})
}

func (l *ledger) admit(key string, v verdict) {
	l.of(key, func(a *account) { a.verdicts = append(a.verdicts, v) })
}

// doubt records a count of unknown outcome.
func (l *ledger) doubt(key string, n int64, until time.Time) {
	l.of(key, func(a *account) { a.doubt(doubt{n, until}) })
}

func (a *account) doubt(d doubt) {
	a.more += max(0, d.n)
	a.less += max(0, -d.n)
	a.open = append(a.open, d)
}

// lose writes off lost counts. The sum n may consist of counts and of counts taken back: either may
// have survived without the other.
func (l *ledger) lose(key string, n int64) {
	l.of(key, func(a *account) {
		taken := a.taken + a.less
		a.lost += max(0, n) + taken
		a.kept += max(0, -n) + taken
	})
}

// withhold records the unflushed counts of a suspended process: no other process knows them until
// it resumes.
func (w *world) withhold(ns, key []byte, n int64) {
	if twotier.Companion(ns) != "" {
		w.bans.lose(string(key))
		w.holds.lose(w, ns, key)
		return
	}
	w.ledger.of(string(key), func(a *account) { a.withheld += max(0, n) })
}

// repeat records counts that may be counted twice: a round was in flight when Redis lost its data
// along with the round's number. If another counter had read the round's counts, it restores them,
// while the sender learns of the loss and sends the round again.
func (l *ledger) repeat(key string, n int64) {
	l.of(key, func(a *account) { a.kept += n })
}

// reappear records the additional counts of a Redis that went back to an earlier state. If that
// undid a reset, all of its counts are from before the reset, and a delayed copy of a round from
// then may be carried out once more. The counts made since the reset are gone, and a round in
// flight with some of them is sent again.
func (l *ledger) reappear(key string, had, has int64, then time.Time) {
	l.of(key, func(a *account) {
		if !a.reset.Before(then) {
			had, has = 0, max(has, a.before)
		}
		a.kept += max(0, has-had)
	})
}

// reset records that all counts are gone, except for those that processes which did not learn of
// the reset may bring back, and those that may be carried out only after it. asked is when the
// reset was requested. If several nodes count a key and Redis loses data, or if two decide about it
// in a split, everything that was ever counted may come back. An earlier reset of unknown outcome
// may still happen.
func (l *ledger) reset(key string, asked time.Time, away int64, several bool) {
	l.of(key, func(a *account) {
		if several {
			away = a.most()
		}
		before := a.open
		*a = account{kept: away, reset: time.Now(), before: a.most(), resetting: a.resetting}
		for _, d := range before {
			if d.until.After(asked) {
				a.doubt(d)
			}
		}
	})
}

// mayBeReset records that the outcome of a reset is unknown. It may still happen: a reset that is
// only in memory is flushed at some time.
func (l *ledger) mayBeReset(key string) {
	l.of(key, func(a *account) { a.resetting = true })
}

// least and most bound the remaining counts of a key.
func (a *account) least() int64 {
	if a.resetting {
		return min(0, a.acknowledged-a.less-a.lost)
	}
	return a.acknowledged - a.less - a.lost
}
func (a *account) most() int64 { return a.acknowledged + a.more + a.kept }

func (l *ledger) copy(key string) (c account) {
	l.of(key, func(a *account) { c = *a })
	return c
}

func (l *ledger) has(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key] != nil
}

func (l *ledger) names() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.keys {
		list = append(list, key)
	}
	slices.Sort(list)
	return list
}

// totals sums up schedules.
type totals struct {
	schedules, acknowledged, unknown, refused, lost, excess atomic.Int64
	overshot, borrowed, near                                atomic.Int64
	held, settled, repeated, renewed, released              atomic.Int64
}

func (s *totals) add(o outcome) {
	s.schedules.Add(1)
	s.acknowledged.Add(o.acknowledged)
	s.unknown.Add(o.unknown)
	s.refused.Add(o.refused)
	s.lost.Add(o.lost)
	s.excess.Add(o.excess)
	s.borrowed.Add(o.borrowed)
	s.near.Add(o.near)
	s.held.Add(o.holds.made)
	s.settled.Add(o.holds.settled)
	s.repeated.Add(o.holds.repeated)
	s.renewed.Add(o.holds.renewed)
	s.released.Add(o.holds.released)
	if o.excess > 0 {
		s.overshot.Add(1)
	}
}

func (s *totals) String() string {
	return fmt.Sprintf("%d schedules: %d counts acknowledged, %d of unknown outcome, %d "+
		"operations failed; %d counts lost with killed processes; "+
		"%d admitted over a limit in %d schedules with splits or crashes; %d answers "+
		"about hot keys, %d remembered refusals; %d holds, %d settled or renewed, %d renewed, %d "+
		"repeated in vain, %d released",
		s.schedules.Load(), s.acknowledged.Load(), s.unknown.Load(), s.refused.Load(),
		s.lost.Load(), s.excess.Load(), s.overshot.Load(),
		s.borrowed.Load(), s.near.Load(), s.held.Load(), s.settled.Load(), s.renewed.Load(),
		s.repeated.Load(), s.released.Load())
}

// outcome is the result of one schedule.
type outcome struct {
	acknowledged, unknown, refused, lost, excess, borrowed, near int64

	holds holdSums
}

// check compares the ledger with the reports of Redis and all nodes.
func (w *world) check() (o outcome) {
	nodes := w.ask(slices.DeleteFunc(w.ledger.names(), isSpent))
	for _, key := range w.ledger.names() {
		a := w.ledger.copy(key)
		r := w.stored(key)
		if r > a.most() || r < a.least() {
			w.t.Errorf("%s: Redis has %d, want %d to %d: %d were acknowledged, %d and %d back "+
				"are in doubt, %d lost, %d back kept",
				key, r, a.least(), a.most(), a.acknowledged, a.more, a.less, a.lost, a.kept)
		}
		w.checkCells(key)
		if !isSpent(key) {
			w.checkAnswers(key, nodes)
		}
		w.checkVerdicts(key, &a)
		if a.over && r != 0 && a.lost == 0 {
			w.t.Errorf("%s: Redis has %d, of which nobody knew when the time for it was up", key, r)
		}
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", key, w.journal.about(key))
			return o
		}
		if strings.HasPrefix(key, "large") {
			continue // these would dominate the totals
		}
		o.acknowledged += a.acknowledged
		o.unknown += a.more + a.less
		o.lost += max(0, a.acknowledged-r)
		if limits := limitsOf(key); len(limits) > 0 {
			o.excess += max(0, a.admitted()-limits[len(limits)-1].Max)
		}
	}
	w.checkGroups()
	w.checkStandIns()
	w.checkBans()
	w.checkValues()
	w.checkHolds()
	o.refused, o.borrowed, o.near = w.refused.Load(), w.borrowed.Load(), w.near.Load()
	o.holds = w.holds.sums
	return o
}

// stored returns the count of a key in Redis.
func (w *world) stored(key string) (n int64) {
	return w.redis.Sum(w.partition(key), nil, []byte(key))
}

// settle waits until nothing is pending, all nodes own their partitions, and owners have received
// the counts that others made in their place.
func (w *world) settle(t *testing.T) {
	if !w.until(patience, func() bool {
		for _, p := range w.alive() {
			s := p.node.Stats()
			if s.Counter.PendingBuckets > 0 || !w.hasAll(p) || s.HotKeys+s.LeasedKeys > 0 ||
				!p.knowsTime() {
				return false
			}
		}
		return w.owned() == w.plan.partitions
	}) {
		for _, p := range w.alive() {
			s := p.node.Stats()
			t.Errorf("node %s does not settle: %d buckets pending, %d partitions held, %d "+
				"members, mode %s", p.id, s.Counter.PendingBuckets, s.Held, s.Members,
				p.node.Mode())
		}
	}
	time.Sleep(3*time.Second + 3*w.plan.interval)
}

// hasAll reports whether exactly the live processes are members in a node's table.
func (w *world) hasAll(p *proc) bool {
	table, list := p.ring.Table(), w.alive()
	return table.Len() == len(list) && !slices.ContainsFunc(list, func(q *proc) bool {
		return table.Find(q.ring.Name()) < 0
	})
}
