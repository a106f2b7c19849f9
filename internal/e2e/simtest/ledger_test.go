package simtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/node"
)

// ledger is what clients were told.
type ledger struct {
	mu   sync.Mutex
	keys map[string]*account
}

// account is what is known of one key.
type account struct {
	acknowledged int64
	taken        int64 // of what is acknowledged, taken back
	// more may have been counted and less may have been taken back: their outcomes are unknown.
	more, less int64
	// lost is the most that was in the memory of processes that were killed, or of a Redis that
	// lost it.
	lost      int64
	kept      int64 // at most so much that was taken back came back in the same way
	verdicts  []verdict
	resetting bool // a reset may have been carried out, or may still be
	over      bool // the time for all that was asked was up, and nobody had counted it
}

// verdict is one acquire that was admitted.
type verdict struct {
	asked, told time.Time
	n           int64
	by          string
	source      node.Source
	degraded    bool // it says that it was given without the store
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

// acknowledge notes what was counted. What is taken back is as much as there is in the eyes of
// whoever takes it, which may be less than n unless it sees all that was counted.
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

func (l *ledger) doubt(key string, n int64) {
	l.of(key, func(a *account) {
		a.more += max(0, n)
		a.less += max(0, -n)
	})
}

// lose writes off what is gone. The sum n may hold what was counted and what was taken back: either
// may have survived the other.
func (l *ledger) lose(key string, n int64) {
	l.of(key, func(a *account) {
		taken := a.taken + a.less
		a.lost += max(0, n) + taken
		a.kept += max(0, -n) + taken
	})
}

// repeat notes what may be counted twice: it was under way when Redis lost what it had, number and
// all, and if another counter has read it, that one restores it, while the one that sent it learns
// that it was lost and sends it again.
func (l *ledger) repeat(key string, n int64) {
	l.of(key, func(a *account) { a.kept += n })
}

// reset notes that all which was counted is gone, but for what those may bring back who were not
// told: if several count a key, and Redis loses something, or if two decide about it in a split,
// that may be all that ever was.
func (l *ledger) reset(key string, away int64, several bool) {
	l.of(key, func(a *account) {
		if several {
			away = a.most()
		}
		*a = account{kept: away}
	})
}

// mayBeReset notes that nobody knows whether it is, or will be: a reset that is in memory only is
// flushed some time.
func (l *ledger) mayBeReset(key string) {
	l.of(key, func(a *account) { a.resetting = true })
}

// least and most are what may be left of a key.
func (a *account) least() int64 {
	if a.resetting {
		return min(0, a.acknowledged-a.less-a.lost)
	}
	return a.acknowledged - a.less - a.lost
}
func (a *account) most() int64 { return a.acknowledged + a.more + a.kept }

// mostWithin is the most that was certainly admitted within a window of so many milliseconds.
func (a *account) mostWithin(window int64) (most int64) {
	for i := range a.verdicts {
		until, n := a.verdicts[i].asked.Add(time.Duration(window)*time.Millisecond), int64(0)
		for j := range a.verdicts {
			if v := &a.verdicts[j]; !v.asked.Before(a.verdicts[i].asked) && v.told.Before(until) {
				n += v.n
			}
		}
		most = max(most, n)
	}
	return most
}

// admitted is how much acquires were let through.
func (a *account) admitted() (n int64) {
	for i := range a.verdicts {
		n += a.verdicts[i].n
	}
	return n
}

// blind returns a verdict that had to know better: what had been told at least so long before it
// was asked for, and was still in the window when it was told, left no room. One that says that it
// was given without the store is not held to that, nor is one beside or in place of an owner who
// may not have restored yet what Redis lost, or not have written what it counted without Redis.
func (a *account) blind(limit node.Limit, stale time.Duration, list []span) *verdict {
	slices.SortFunc(a.verdicts, func(x, y verdict) int { return x.told.Compare(y.told) })
	for i := range a.verdicts {
		v, known := &a.verdicts[i], int64(0)
		since := v.told.Add(-time.Duration(limit.Window) * time.Millisecond)
		for _, earlier := range a.verdicts {
			if !earlier.told.Before(v.asked.Add(-stale)) {
				break
			}
			if earlier.asked.After(since) {
				known += earlier.n
			}
		}
		if known+v.n > limit.Max+a.lost && !v.degraded && !v.hindered(stale, list) {
			return v
		}
	}
	return nil
}

// hindered reports whether a verdict relies on what Redis has, and Redis lost something, or could
// not be reached by others, so shortly before that not all need be there.
func (v *verdict) hindered(stale time.Duration, list []span) bool {
	beside := v.source == node.SourceShared || v.source == node.SourceFallback
	return beside && slices.ContainsFunc(list, func(s span) bool {
		return s.from.Before(v.told) && s.to.After(v.asked.Add(-stale))
	})
}

// hindered is when Redis lost something, or could not be written to by some.
func (w *world) hindered() (list []span) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	list = slices.Clone(w.outages)
	for _, at := range w.lossy {
		list = append(list, span{at, at})
	}
	return list
}

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
	return fmt.Sprintf("%d schedules: %d counts acknowledged, %d of unknown outcome, %d "+
		"operations failed; %d counts lost with killed processes; "+
		"%d admitted over a limit in %d schedules with splits, crashes or hot keys; %d answers "+
		"about hot keys, %d remembered refusals",
		s.schedules.Load(), s.acknowledged.Load(), s.unknown.Load(), s.refused.Load(),
		s.lost.Load(), s.excess.Load(), s.overshot.Load(),
		s.shared.Load(), s.near.Load())
}

// outcome is what came out of one schedule.
type outcome struct{ acknowledged, unknown, refused, lost, excess, shared, near int64 }

// check holds the ledger against what Redis and all nodes say.
func (w *world) check() (o outcome) {
	nodes := w.ask(w.ledger.names())
	for _, key := range w.ledger.names() {
		a := w.ledger.copy(key)
		r := w.stored(key)
		if r > a.most() || r < a.least() {
			w.t.Errorf("%s: Redis has %d, want %d to %d: %d were acknowledged, %d and %d back "+
				"are in doubt, %d lost, %d back kept",
				key, r, a.least(), a.most(), a.acknowledged, a.more, a.less, a.lost, a.kept)
		}
		w.checkAnswers(key, r, nodes)
		w.checkVerdicts(key, &a)
		if a.over && r != 0 && a.lost == 0 {
			w.t.Errorf("%s: Redis has %d, of which nobody knew when the time for it was up", key, r)
		}
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", key, w.journal.about(key))
			return o
		}
		if strings.HasPrefix(key, "large") {
			continue // the totals would be about nothing else
		}
		o.acknowledged += a.acknowledged
		o.unknown += a.more + a.less
		o.lost += max(0, a.acknowledged-r)
		if limits := limitsOf(key); len(limits) > 0 {
			o.excess += max(0, a.admitted()-limits[len(limits)-1].Max)
		}
	}
	w.checkGroups()
	o.refused, o.shared, o.near = w.refused.Load(), w.shared.Load(), w.near.Load()
	return o
}

// checkAnswers holds every node's answers about a key against what Redis has: all levels of its
// ladder have the same, as all is recent. A bucket of which more was taken back than is left counts
// as zero.
func (w *world) checkAnswers(key string, r int64, nodes map[*proc]answers) {
	if n := w.storedAt(key, 1); n != r {
		w.t.Errorf("%s: Redis has %d in the buckets of a minute, %d in those of a quarter",
			key, n, r)
	}
	if strings.HasPrefix(key, "group") {
		return // there are many of them, and each was used once
	}
	if p := w.alive()[len(key)%len(w.alive())]; !strings.HasPrefix(key, "once") {
		if n, err := p.sum(key); err != nil || n != w.countedAt(key, 1) {
			w.t.Errorf("%s: node %s has a series of %d (%v), Redis %d", key, p.id, n, err, r)
		}
	}
	for p, said := range nodes {
		for i, window := range checkedWindows {
			level := uint8(len(checkedWindows) - i)
			if n, err := said[key].counts[i], said[key].err; err != nil ||
				n != w.countedAt(key, level) {
				w.t.Errorf("%s: node %s says %d (%v) for %d ms, Redis %d", key, p.id, n, err,
					window, r)
			}
		}
	}
}

// checkVerdicts holds those that were admitted against what the nodes had to know: all, where
// nobody was ever out of reach, and else what is older than the time after which everybody has
// heard of it.
func (w *world) checkVerdicts(key string, a *account) {
	stale := w.plan.stale()
	if w.plan.exact {
		stale = 0
	}
	for _, limit := range limitsOf(key) {
		if n := a.mostWithin(limit.Window); w.plan.exact && n > limit.Max {
			w.t.Errorf("%s: %d admitted within %d ms, the limit is %d", key, n, limit.Window,
				limit.Max)
		}
		if v := a.blind(limit, stale, w.hindered()); v != nil {
			w.t.Errorf("%s: node %s admits (%s) at %s what was used up %v before, the limit is "+
				"%d in %d ms", key, v.by, v.source,
				v.told.Format("05.000"), stale, limit.Max, limit.Window)
		}
	}
}

// checkGroups expects of each acquire over keys of its own that all are counted or none is, unless
// some of it may be lost. That owners lose sight of each other is no excuse for keys with one hash
// tag: they have one.
func (w *world) checkGroups() {
	for number := int64(1); number <= w.groups.Load(); number++ {
		var counts []int64
		lost := int64(0)
		for i := 0; ; i++ {
			key := string(groupKey(number, i))
			if !w.ledger.has(key) {
				break
			}
			a := w.ledger.copy(key)
			lost += a.lost
			counts = append(counts, w.stored(key))
		}
		if lost == 0 && len(slices.Compact(slices.Clone(counts))) > 1 &&
			(hasTag(number) || !w.plan.parts()) {
			w.t.Errorf("group%d: Redis has %v of what is all or nothing", number, counts)
			w.t.Logf("%s", w.journal.about(string(groupKey(number, 0))))
			return
		}
	}
}

// stored is what Redis has of a key.
func (w *world) stored(key string) (n int64) { return w.storedAt(key, 2) }

// countedAt is how many events the buckets of a level count that Redis has of a key.
func (w *world) countedAt(key string, level uint8) (n int64) {
	for _, b := range w.redis.Get(w.partition(key), nil, []byte(key)) {
		if b.Level == level {
			n += max(0, b.N)
		}
	}
	return n
}

func (w *world) storedAt(key string, level uint8) int64 {
	return w.redis.Sum(w.partition(key), nil, []byte(key), level)
}

// settle waits until nothing is pending, everybody owns what is theirs, and owners have heard what
// others counted in their place.
func (w *world) settle(t *testing.T) {
	if !w.until(patience, func() bool {
		for _, p := range w.alive() {
			s := p.node.Stats()
			if s.Counter.PendingBuckets > 0 || !w.hasAll(p) || s.HotKeys+s.LeasedKeys > 0 {
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
	time.Sleep(3 * time.Second)
}

// hasAll reports whether a node counts all that are alive among the members, and no others.
func (w *world) hasAll(p *proc) bool {
	table, list := p.ring.Table(), w.alive()
	return table.Len() == len(list) && !slices.ContainsFunc(list, func(q *proc) bool {
		return table.Find(q.ring.Name()) < 0
	})
}
