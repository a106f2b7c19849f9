package syncer_test

import (
	"context"
	"errors"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// edge returns a time, or a nearby one at the edge of a bucket or a millisecond off.
func (w *world) edge(ms int64) int64 {
	if w.rnd.IntN(2) == 0 {
		return ms
	}
	return ms - ms%w.ladder.Width(w.rnd.IntN(w.ladder.Len())) - 1 + w.rnd.Int64N(3)
}

// window returns any window that the ladder covers, often one as long as a level.
func (w *world) window() int64 {
	lv := w.plan.levels[w.rnd.IntN(len(w.plan.levels))]
	switch w.rnd.IntN(4) {
	case 0:
		return lv.Span().Milliseconds()
	case 1:
		return 1 + w.rnd.Int64N(lv.Span().Milliseconds())
	}
	return 1 + w.rnd.Int64N(w.ladder.Span())
}

// count reads a window that ends now or in the past. One counter's figure lies between its own
// counts and the counts of all counters (I8).
func (w *world) count() {
	key := w.pick()
	k := w.truth(key)
	window := w.window()
	op := twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Limits: []twotier.Limit{{Window: window}}}}}
	now := w.now()
	at := now
	if w.rnd.IntN(2) == 0 {
		at = min(now, w.edge(now-w.rnd.Int64N(w.ladder.Span())))
		if w.rnd.IntN(2) == 0 {
			at = min(now, w.edge(now-w.rnd.Int64N(w.ladder.Width(0)))) // in the last bucket
			window = 1 + w.rnd.Int64N(w.ladder.Width(0))
		}
		at = max(at, now-w.ladder.Span()+1)
		op.TS = at
	}
	window = min(w.ladder.Span(), max(1, at-w.edge(at-window)))
	op.Checks[0].Limits[0].Window = window
	if p := w.period(); p != nil && w.dates.IntN(3) == 0 {
		limit := twotier.Limit{Period: p}
		op.Checks[0].Limits[0], window = limit, limit.WindowAt(at)
	}
	var res twotier.Result
	if !w.do(w.c, &op, []string{key}, &res) || w.now() != now || k.taken {
		return
	}
	l := res.Checks[0].Limits[0]
	w.age(k)
	sure, exact, wider := k.within(at, window, l.BucketMS)
	// In this case nothing was evicted, forgotten or left behind.
	inMemory := w.plan.memory == 0 && op.TS == 0 && w.starts == 1
	known := w.two == nil && (inMemory || !res.Degraded)
	most := exact
	if w.two != nil && op.TS == 0 {
		// The other's counts ahead of the present are known only once they are read.
		_, most, _ = k.within(at+aheadMS, window+aheadMS, 0)
	}
	if l.Hi > wider || l.Lo > most || known && l.Hi < sure {
		w.t.Errorf("%s: window of %d ms at %d, now %d: %+v, surely %d, exactly %d, with a "+
			"bucket more %d: %+v", key, window, at, now, l, sure, exact, wider, k.log)
	}
	if l.Lo > l.Count || l.Count > l.Hi {
		w.t.Errorf("%s: window of %d ms at %d: %+v", key, window, at, l)
	}
}

// period returns a calendar period that the ladder covers, or nil if there is none.
func (w *world) period() *twotier.Period {
	zones := [...]string{"", "Europe/Lisbon", "Asia/Kathmandu", "Australia/Lord_Howe"}
	zone := zones[w.dates.IntN(len(zones))]
	for _, unit := range w.dates.Perm(4) {
		first := [...]int{twotier.DefaultAnchor, 0, 1, 1}[unit]
		anchor := first + w.dates.IntN(7)
		if unit == 0 {
			anchor = first
		}
		p, err := twotier.NewPeriod(twotier.PeriodUnit(unit).String(), zone, anchor)
		if err != nil {
			w.t.Fatal(err)
		}
		if p.Longest() <= w.ladder.Span() {
			return p
		}
	}
	return nil
}

const aheadMS = int64(leaparray.MaxAhead / time.Millisecond)

// within adds up the events in a window: the ones that must be remembered, all of them, and all
// with one more bucket at each end.
func (k *truth) within(at, window, bucket int64) (sure, exact, wider int64) {
	for _, e := range k.log {
		if e.ts > at-window-bucket && e.ts <= at+bucket {
			wider += e.n
		}
		if e.ts > at-window && e.ts <= at {
			exact += e.n
		}
		if e.ts > at-window && e.ts <= at && !e.lost {
			sure += e.n
		}
	}
	return sure, exact, wider
}

// series reads the buckets of a key, which must match the list of events.
func (w *world) series() {
	if w.two != nil {
		return
	}
	key := w.pick()
	k := w.truth(key)
	window := w.window()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	now := w.now()
	width, points, err := w.c.Series(ctx, nil, []byte(key), window, false)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, twotier.ErrUnavailable),
		errors.Is(err, twotier.ErrOverload) && w.plan.memory > 0:
		return
	case err != nil:
		w.t.Errorf("series of %s over %d ms: %v", key, window, err)
		return
	}
	if h := w.c.Held(nil, []byte(key)); h.Found && !h.Warm || !h.Found && len(points) == 0 ||
		w.now() != now {
		return // the store's counts are not known
	}
	first := (now - window + 1) / width
	if n, most := int64(len(points)), now/width-first+1; n != most {
		w.t.Errorf("series of %s over %d ms: %d points of %d ms, want %d", key, window, n, width,
			most)
	}
	for _, p := range points {
		least, most := k.between(p.Start, p.Start+width, now)
		if w.alive(w.coarse(p.Start)) && !k.taken && (p.Count < least || p.Count > most) &&
			!w.degraded() {
			w.t.Errorf("series of %s over %d ms: %d ms from %d hold %d, want %d to %d", key, window,
				width, p.Start, p.Count, least, most)
		}
	}
}

// between adds up the events from a moment to another, excluding it: the ones that must be
// remembered and are not ahead of the present, and all of them.
func (k *truth) between(from, to, now int64) (least, most int64) {
	for _, e := range k.log {
		switch {
		case e.ts < from || e.ts >= to:
		case e.ts <= now && !e.lost:
			least += e.n
			fallthrough
		default:
			most += e.n
		}
	}
	return least, most
}

func (w *world) degraded() bool { return w.c.Stats().DegradedPartitions > 0 }
