package simtest

import (
	"slices"
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
