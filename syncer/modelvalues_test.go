package syncer_test

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

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
