package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
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

// mostSeen is how many different values a key of values has in the model.
const mostSeen = 12

// seen holds when the values of a key were last seen, and those that the first counter has added.
type seen struct{ all, own map[uint64]int64 }

// values returns the true values of a key.
func (w *world) values(key string) *seen {
	k := w.valued[key]
	if k == nil {
		k = &seen{map[uint64]int64{}, map[uint64]int64{}}
		w.valued[key] = k
	}
	return k
}

// valuesCheck draws a check of up to four values of a key.
func (w *world) valuesCheck() (c twotier.Check) {
	c = twotier.Check{Kind: twotier.ValuesCheck, NS: spaceOf("/")}
	for range w.rnd.IntN(5) {
		c.Values = append(c.Values, leaparray.CleanHash(uint64(w.rnd.IntN(mostSeen))<<58))
	}
	slices.Sort(c.Values)
	c.Values = slices.Compact(c.Values)
	c.N = int64(len(c.Values))
	return c
}

// addValues adds values, also late ones.
func (w *world) addValues() {
	key, c := w.key("/values"), w.valuesCheck()
	if len(c.Values) == 0 {
		return
	}
	actor, own := w.actor()
	ts, is := w.moment()
	op := twotier.Op{Kind: twotier.Add, TS: ts, Checks: []twotier.Check{c}}
	if w.do(actor, &op, []string{key}, new(twotier.Result)) {
		w.values(key).add(c.Values, is, own)
	}
}

func (k *seen) add(values []uint64, at int64, own bool) {
	for _, hash := range values {
		if k.all[hash] = max(k.all[hash], at); own {
			k.own[hash] = max(k.own[hash], at)
		}
	}
}

// acquireValues limits the different values of a key, alone or beside the events of another one.
func (w *world) acquireValues() {
	actor, own := w.actor()
	key, c := w.key("/values"), w.valuesCheck()
	for range 1 + w.rnd.IntN(2) {
		c.Limits = append(c.Limits, twotier.Limit{Window: w.window(), Max: w.rnd.Int64N(mostSeen)})
	}
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{c},
		CountDenied: w.two == nil && w.rnd.IntN(20) == 0, DryRun: w.rnd.IntN(20) == 0}
	keys := []string{key}
	if w.rnd.IntN(2) == 0 {
		limited := w.key("limited")
		keys, op.Checks = append(keys, limited), append(op.Checks, w.check(limited))
	}
	if w.two == nil && w.rnd.IntN(8) == 0 {
		op.Reserve, op.DryRun = "id", false
	}
	now := w.now()
	var res twotier.Result
	if !w.do(actor, &op, keys, &res) {
		return
	}
	if w.two == nil && !(res.Degraded && w.plan.onCold == syncer.OnColdAllow) {
		w.judgeValues(&op, key, &res, now)
	}
	op.TS = now
	if !op.Counts(&res) || op.Reserve != "" && !(res.Allowed && w.confirm(actor, &op, keys)) {
		return
	}
	w.values(key).add(c.Values, now, own)
	if len(keys) > 1 && op.Checks[1].N > 0 {
		k := w.truth(keys[1])
		w.record(k, own, now, op.Checks[1].N)
		w.log(k, now, op.Checks[1].N)
	}
}

// judgeValues compares a decision with the true values. Limits on values are exact to the
// millisecond, unless the store can't be asked.
func (w *world) judgeValues(op *twotier.Op, key string, res *twotier.Result, now int64) {
	k := w.values(key)
	for _, lr := range res.Checks[0].Limits {
		before, after := k.within(now-lr.Window, nil), k.within(now-lr.Window, op.Checks[0].Values)
		counted := before
		if res.Allowed || op.CountsRefused(res) && op.Reserve == "" {
			counted = after
		}
		if res.Degraded {
			if res.Allowed && after > lr.Max {
				w.t.Errorf("%s at %d: admitted %d of %d: %v", key, now, after, lr.Max, k.all)
			}
			continue
		}
		if lr.Refused != (after > lr.Max) || lr.Count != counted || lr.Lo != lr.Hi {
			w.t.Errorf("%s at %d, adding %v: %+v, there are %d, and %d with them: %v", key, now,
				op.Checks[0].Values, lr, before, after, k.all)
		}
	}
}

// within returns the number of values that were seen after a moment, with some more.
func (k *seen) within(after int64, more []uint64) int64 {
	in := map[uint64]bool{}
	for _, hash := range more {
		in[hash] = true
	}
	for hash, at := range k.all {
		if at > after {
			in[hash] = true
		}
	}
	return int64(len(in))
}

// forgetValues resets a key of values.
func (w *world) forgetValues() {
	if w.two != nil || w.plan.rewinds {
		return
	}
	key := w.key("/values")
	if w.reset(key) {
		k := w.values(key)
		clear(k.all)
		clear(k.own)
	}
}

// verifyValues compares memory's values of a key with the true ones.
func (w *world) verifyValues(key string) {
	k, h := w.values(key), w.c.Values(spaceOf(key), []byte(key))
	if !h.Warm {
		return
	}
	oldest := w.now() - w.ladder.Span()
	want := k.all
	if w.two != nil {
		want = k.own
	}
	for hash, at := range want {
		if got := h.Seen[hash]; at > oldest && (got < at || w.two == nil && got != at) {
			w.t.Errorf("%s: value %x was seen at %d, memory says %d (now %d)", key, hash, at, got,
				w.now())
		}
	}
	for hash, at := range h.Seen {
		if at > k.all[hash] && at > oldest {
			w.t.Errorf("%s: value %x was never seen at %d", key, hash, at)
		}
	}
}

// ledgerValues compares a key's values in the store with the true ones.
func (w *world) ledgerValues(key string) {
	k, part := w.values(key), w.partition(key)
	stored := map[uint64]int64{}
	for _, b := range w.store.Get(part, spaceOf(key), []byte(key)) {
		stored[b.ValueHash()] = b.N
	}
	oldest := w.now() - w.ladder.Span()
	for hash := range mergedKeys(k.all, stored) {
		if got, want := stored[hash], k.all[hash]; max(got, want) > oldest && got != want {
			w.t.Errorf("%s: value %x was seen at %d, the store says %d (now %d)", key, hash, want,
				got, w.now())
		}
	}
	if e := w.store.Expires(part, spaceOf(key), []byte(key)); e == math.MaxInt64 {
		w.t.Errorf("%s has no time to live", key)
	}
}

func mergedKeys(a, b map[uint64]int64) map[uint64]int64 {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// stepValues carries out an operation on values.
func (w *world) stepValues() {
	switch n := w.rnd.IntN(20); {
	case n < 8:
		w.addValues()
	case n < 19:
		w.acquireValues()
	default:
		w.forgetValues()
	}
	w.verifyValues(fmt.Sprint("/values", w.rnd.IntN(w.plan.keys)))
}
