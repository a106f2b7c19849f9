package simtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// checkHolds compares how many holds of each key are open at each node, now and when all have
// ended, with the answers of clients.
func (w *world) checkHolds() {
	if !w.plan.holds {
		return
	}
	var last time.Time
	for i := range leasedKeys {
		key := fmt.Sprint("leased", i)
		for _, p := range w.alive() {
			if s, err := p.opened(key); err == nil {
				w.holds.see(key, s)
			} else {
				w.t.Errorf("%s: node %s says %v", key, p.id, err)
			}
		}
		last = w.checkLeases(key, last)
	}
	for i := range quotaKeys {
		w.checkQuota(fmt.Sprint("quota", i))
	}
	time.Sleep(time.Until(last) + w.plan.apart())
	for i := range leasedKeys {
		key := fmt.Sprint("leased", i)
		for _, p := range w.alive() {
			if s, err := p.opened(key); err != nil || s.open != 1 {
				w.t.Errorf("%s: node %s has %d open when all have ended, %v", key, p.id, s.open-1,
					err)
			}
		}
	}
}

// opened asks a node for how many holds of a key are open if there is one more.
func (p *proc) opened(key string) (s sighting, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	op := twotier.Op{Kind: twotier.Acquire, DryRun: true, Hold: 1000,
		Checks: []twotier.Check{{Key: []byte(key), N: 1}},
		Leases: []twotier.Lease{{Max: twotier.MaxBound}}}
	var res twotier.Result
	s = sighting{verdict: verdict{asked: time.Now(), by: p.id, ip: p.ip}, allowed: true}
	if err := p.node.Do(ctx, &op, &res); err != nil {
		return s, err
	}
	s.told, s.open, s.source, s.degraded = time.Now(), res.Leases[0].Open, res.Source, res.Degraded
	return s, nil
}

// checkLeases compares the answers about how many holds of a key are open with the holds that were
// open for certain, and with those that may have been. It returns when the last hold ends.
func (w *world) checkLeases(key string, last time.Time) time.Time {
	h := &w.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases[key] {
		if l.until.After(last) && !l.void {
			last = l.until
		}
	}
	for _, s := range h.seen[key] {
		stale := w.plan.stale()
		if w.plan.exact {
			stale = 0
		}
		least, most := h.openAt(w, key, &s, stale)
		own := int64(0)
		if s.allowed {
			own = 1
			if !s.took {
				most++
			}
		}
		hindered := !w.plan.exact && slices.ContainsFunc(w.hindered(),
			span{s.asked.Add(-2 * stale), s.told}.overlaps)
		// Whoever stands in for an owner may lack what that one has counted.
		if !s.degraded && (!hindered && (s.open < least+own ||
			s.took && least >= mostOpen(key)) || s.open > most) {
			w.t.Errorf("%s: node %s has %d open at %s (%s, allowed %v), want %d to %d, and the "+
				"limit is %d", key, s.by, s.open, s.told.Format("05.000"), s.source, s.allowed,
				least+own, most, mostOpen(key))
			w.t.Logf("%s:\n%s", key, w.journal.about(key))
			return last
		}
	}
	return last
}

// openAt returns how many leases were open during an answer, apart from its own: for certain, and
// at most. Ones that were returned may be open again if that was lost. A node that settles a hold
// apart from the nodes that know of its lease does not return it.
func (s *holds) openAt(w *world, key string, during *sighting, stale time.Duration) (
	least, most int64) {
	apart := w.plan.apart()
	lost := func(from time.Time) bool {
		return slices.ContainsFunc(s.losses[key], func(at time.Time) bool {
			return at.Before(during.told) && !at.Before(from)
		})
	}
	for _, l := range s.leases[key] {
		if l.void {
			continue
		}
		from, gone := l.ends()
		if w.isDivided() {
			gone = forever
		}
		if !l.told.IsZero() && l.told.Before(during.asked.Add(-stale)) && !l.degraded &&
			from.After(during.told) && l.until.Add(-apart).After(during.told) && !lost(l.asked) {
			least++
		}
		if !l.asked.After(during.told) && !gone.Add(stale).Before(during.asked) &&
			l.until.Add(apart).After(during.asked) {
			most++
		}
	}
	if lost(time.Time{}) {
		most = math.MaxInt32
	}
	return least, most
}

// ends returns from when on a lease may have been returned, and when it has been for certain.
func (l *lease) ends() (from, gone time.Time) {
	from, gone = forever, forever
	if l.of == nil {
		return from, gone
	}
	for _, a := range l.of.attempts {
		if !a.void && a.asked.Before(from) {
			from = a.asked
		}
		if a.done && a.told.Before(gone) {
			gone = a.told
		}
	}
	return from, gone
}

// quota records the counts of a key that has a limit on calendar periods.
type quota struct {
	made []made
	read []counting
}

// made is a count that was made, or may have been.
type made struct {
	span
	n       int64
	certain bool
}

// counting is an answer about the events of a calendar period.
type counting struct {
	span
	by       string
	min, max int64
}

func (s *holds) quota(key string, fn func(q *quota)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quotas == nil {
		s.quotas = map[string]*quota{}
	}
	if s.quotas[key] == nil {
		s.quotas[key] = &quota{}
	}
	fn(s.quotas[key])
}

// checkQuota checks that no calendar period has more events than the limit allows, as far as the
// nodes had to know of them, and that reads of the period are right if every node could be reached.
// What nodes have borrowed of a hot key is in none of them at once.
func (w *world) checkQuota(key string) {
	limit, _ := quotaOf(key)
	a, stale, apart := w.ledger.copy(key), w.plan.stale(), w.plan.apart()
	if w.plan.exact {
		stale = 0
	}
	since := func(v *verdict) (time.Time, bool) {
		start, end := around(limit.Period, v.told)
		return start.Add(apart), v.told.Before(end.Add(-apart)) && v.asked.After(start.Add(apart))
	}
	if v := a.blindSince(limit.Max, since, stale, w.hindered()); v != nil {
		w.t.Errorf("%s: node %s admits (%s) at %s what was used up %v before, the limit is %d in "+
			"each %s", key, v.by, v.source, v.told.Format("05.000"), stale, limit.Max,
			limit.Period)
		w.t.Logf("%s:\n%s", key, w.journal.about(key))
	}
	if !w.plan.exact {
		return
	}
	w.holds.quota(key, func(q *quota) {
		for _, c := range q.read {
			start, end := around(limit.Period, c.to)
			if c.from.Before(start.Add(apart)) || c.to.After(end.Add(-apart)) {
				continue
			}
			least, most := q.bound(&c, start, apart)
			if c.max < least && w.plan.hotRate == 0 || c.min > most {
				w.t.Errorf("%s: node %s counts %d to %d in %s at %s, want %d to %d", key, c.by,
					c.min, c.max, limit.Period, c.to.Format("05.000"), least, most)
				w.t.Logf("%s:\n%s", key, w.journal.about(key))
				return
			}
		}
	})
}

// bound returns how many events an answer has to count at least, and at most.
func (q *quota) bound(c *counting, start time.Time, apart time.Duration) (least, most int64) {
	for _, r := range q.made {
		if r.certain && r.from.After(start.Add(apart)) && r.to.Before(c.from) {
			least += r.n
		}
		if r.from.Before(c.to) && r.to.After(start.Add(-apart)) {
			most += r.n
		}
	}
	return least, most
}

// around returns the calendar period around a moment.
func around(p *twotier.Period, at time.Time) (start, end time.Time) {
	from, to := p.Around(at.UnixMilli())
	return time.UnixMilli(from), time.UnixMilli(to)
}
