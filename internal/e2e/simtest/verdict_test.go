package simtest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// verdict is one acquire that was admitted.
type verdict struct {
	asked, told time.Time
	n           int64
	by, ip      string
	source      twotier.Source
	degraded    bool // it is marked as made without the store
}

// admitted returns how much acquires have admitted.
func (a *account) admitted() (n int64) {
	for i := range a.verdicts {
		n += a.verdicts[i].n
	}
	return n
}

// imprecision is how much longer ago than a window an event may seem by the time of a node: nodes
// count by whole milliseconds, and don't correct a clock that is off by less than one, ahead at one
// node and behind at another.
const imprecision = 3 * time.Millisecond

// leeway is how much longer ago than a window an event may seem to nodes by mistake.
func (p *plan) leeway() time.Duration {
	if p.kind.wild() {
		return 2*wrongTime + imprecision
	}
	return imprecision
}

// certain returns how long a count is certainly in a window of that many milliseconds.
func certain(window int64, leeway time.Duration) time.Duration {
	return time.Duration(window)*time.Millisecond - leeway
}

// mostWithin returns the most that was certainly admitted in a window of that many milliseconds.
func (a *account) mostWithin(window int64) (most int64) {
	for i := range a.verdicts {
		until, n := a.verdicts[i].asked.Add(certain(window, imprecision)), int64(0)
		for j := range a.verdicts {
			if v := &a.verdicts[j]; !v.asked.Before(a.verdicts[i].asked) && v.told.Before(until) {
				n += v.n
			}
		}
		most = max(most, n)
	}
	return most
}

// blind returns a verdict that should have been a refusal: the admissions answered at least stale
// before the verdict was requested, and still in the window when it was answered, left no room. A
// verdict marked as made without the store is exempt. So is one made in place of an owner that may
// not yet have restored counts lost by Redis, or flushed counts made without Redis. The owner could
// not know counts made in its place without Redis, nor any node the unflushed counts of a suspended
// process.
//
// The times of nodes may differ by leeway, which shortens a window by as much.
func (a *account) blind(limit twotier.Limit, stale, leeway time.Duration, list []span) *verdict {
	return a.blindSince(limit.Max, func(v *verdict) (time.Time, bool) {
		return v.told.Add(-certain(limit.Window, leeway)), true
	}, stale, list)
}

// blindSince is blind for the window that begins at the moment that since returns, unless it is
// uncertain which window the verdict is in.
func (a *account) blindSince(most int64, since func(*verdict) (from time.Time, certain bool),
	stale time.Duration, list []span) *verdict {
	slices.SortFunc(a.verdicts, func(x, y verdict) int { return x.told.Compare(y.told) })
	for i := range a.verdicts {
		v, known := &a.verdicts[i], int64(0)
		from, certain := since(v)
		for _, earlier := range a.verdicts {
			if !earlier.told.Before(v.asked.Add(-stale)) {
				break
			}
			if earlier.asked.After(from) && !earlier.unheard(v, stale, list) {
				known += earlier.n
			}
		}
		if certain && known+v.n > most+a.lost+a.withheld && !v.degraded &&
			!v.hindered(stale, list) {
			return v
		}
	}
	return nil
}

// unheard reports whether a verdict was made in place of the owner, and an outage kept it from a
// later verdict: some node could not write to Redis from before the first was flushed until shortly
// before the later one.
func (v *verdict) unheard(later *verdict, stale time.Duration, list []span) bool {
	return (v.source == twotier.SourceFallback || v.source == twotier.SourceDegraded) &&
		slices.ContainsFunc(list, func(s span) bool {
			return s.from.Before(v.told.Add(stale)) && s.to.After(later.asked.Add(-stale))
		})
}

// hindered reports whether a verdict relies on Redis, and shortly before it Redis lost data or some
// node could not write to it, so that counts may be missing there.
func (v *verdict) hindered(stale time.Duration, list []span) bool {
	return v.source == twotier.SourceFallback && slices.ContainsFunc(list, func(s span) bool {
		return s.from.Before(v.told) && s.to.After(v.asked.Add(-stale))
	})
}

// hindered returns the times at which Redis lost data, or some node could not write to it.
func (w *world) hindered() (list []span) {
	w.atomic.Lock()
	defer w.atomic.Unlock()
	list = slices.Clone(w.outages)
	for _, at := range w.lossy {
		list = append(list, span{at, at})
	}
	return list
}

// checkVerdicts compares admitted acquires with the counts that the nodes had to know: all of them,
// if every node could always be reached, or else all older than the time after which every node has
// learned of them.
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
		if v := a.blind(limit, stale, w.plan.leeway(), w.hindered()); v != nil {
			w.t.Errorf("%s: node %s admits (%s) at %s what was used up %v before, the limit is "+
				"%d in %d ms", key, v.by, v.source,
				v.told.Format("05.000"), stale, limit.Max, limit.Window)
		}
		if v := w.excess(key, a, limit); v != nil {
			w.t.Errorf("%s: node %s admits (%s) at %s what was used up, though the owner lived "+
				"and was reached, the limit is %d in %d ms", key, v.by, v.source,
				v.told.Format("05.000"), limit.Max, limit.Window)
		}
	}
}

// noticing bounds how long a process takes to declare a member dead whose leave it missed. Until
// then it stands in for that member, whose address refuses connections. TestALeaveIsMissed measures
// up to 11 s.
const noticing = 15 * time.Second

// isOutdated reports whether, at some moment of a time, a process at a host still had a table in
// which the owner of a partition is a process whose leave it missed.
func (s *sight) isOutdated(ip string, partition int, during span) bool {
	for _, by := range s.procs {
		if by.p.ip != ip {
			continue
		}
		for _, v := range by.in(during) {
			at := v.table.Owner(partition)
			if at < 0 {
				continue
			}
			owner := s.procs[v.table.Member(at).Name]
			if owner != nil && s.mayMiss(by, owner, during.to) {
				return true
			}
		}
	}
	return false
}

// mayMiss reports whether a process may still consider another one a member that has left in good
// order: the announcement did not arrive, because one of them could not be reached or the leaving
// one considered the other dead, and since then there was too little time to notice.
func (s *sight) mayMiss(by, owner *seer, at time.Time) bool {
	left, ended := owner.p.left.Load(), owner.life().to
	if left == 0 || ended.After(at) {
		return false
	}
	leaving := span{time.Unix(0, left), ended}
	if !s.isAway(by.p.ip, leaving) && !s.isAway(owner.p.ip, leaving) && owner.sees(by, leaving) {
		return false
	}
	since := ended
	for _, a := range s.away {
		if a.ip == by.p.ip && a.overlaps(span{leaving.from, at}) && a.to.After(since) {
			since = a.to
		}
	}
	return at.Before(since.Add(noticing))
}

// sees reports whether another process was a member in all tables that this one had in a time.
func (o *seer) sees(other *seer, during span) bool {
	for _, v := range o.in(during) {
		if v.table.Find(other.p.ring.Name()) < 0 {
			return false
		}
	}
	return true
}

// lateness is how much later a deadline may pass for a node than for the client: nodes learn each
// other's time from messages.
const lateness = 100 * time.Millisecond

// watch checks whether a key was counted shortly after the deadline of an operation with an unknown
// outcome. If no process has counted it by then, none may count it later. It only checks keys that
// are used once, in schedules in which Redis does not lose data. During a handover the giving node
// shows the counts until the taking one does, and counts that die with a process are written off.
func (w *world) watch(key string, by time.Time) {
	if !strings.HasPrefix(key, "once") || w.plan.kind.loses() {
		return
	}
	w.watching.Go(func() {
		time.Sleep(time.Until(by) + lateness)
		if !w.known(key) {
			w.ledger.of(key, func(a *account) { a.over = true })
		}
	})
}

// known reports whether Redis or any process has counted a key.
func (w *world) known(key string) (known bool) {
	for _, p := range w.living() {
		p.counter.EachUnflushed(func(_, k []byte, _ int64) { known = known || string(k) == key })
	}
	return known || w.stored(key) != 0
}

// counted records which keys of a batch that are used once had been counted at a moment.
type counted struct {
	mu   sync.Mutex
	keys map[string]bool // nil before that moment
}

// countedBy records which keys of a hasty client's batch have been counted at that moment, if Redis
// loses no data.
func (c *client) countedBy(at time.Time, ops []twotier.Op) *counted {
	l := new(counted)
	if !c.hasty || len(ops) < 2 || c.w.plan.kind.loses() {
		return l
	}
	c.w.watching.Go(func() {
		time.Sleep(time.Until(at))
		keys := map[string]bool{}
		for i := range ops {
			if key := string(ops[i].Checks[0].Key); strings.HasPrefix(key, "once") {
				keys[key] = c.w.stored(key) != 0
			}
		}
		for _, p := range c.w.living() {
			p.counter.EachUnflushed(func(_, k []byte, _ int64) {
				if _, asked := keys[string(k)]; asked {
					keys[string(k)] = true
				}
			})
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keys = keys
	})
	return l
}

// lacks reports whether a key had not been counted yet.
func (l *counted) lacks(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	early, looked := l.keys[key]
	return looked && !early
}
