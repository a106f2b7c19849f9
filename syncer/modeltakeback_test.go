package syncer_test

import (
	"maps"
	"slices"

	"twotier.dev/twotier"
)

// takeBack takes back without a time, or at the time of an event no more than the event's count.
func (w *world) takeBack(key string, k *truth, op *twotier.Op) {
	if op.TS = 0; len(k.log) == 0 || k.taken || w.rnd.IntN(2) == 0 {
		n := op.Checks[0].N
		k.taken, op.Checks[0].N = true, -n
		if w.do(w.c, op, []string{key}, new(twotier.Result)) {
			k.takeNewest(n)
		}
		return
	}
	e := &k.log[w.rnd.IntN(len(k.log))]
	n := min(op.Checks[0].N, e.n)
	if n <= 0 || e.shaky || e.ts <= w.now()-w.ladder.Span() || e.ts > w.now() {
		return
	}
	op.TS, op.Checks[0].N = e.ts, -n
	if w.do(w.c, op, []string{key}, new(twotier.Result)) {
		e.n -= n
		k.buckets[w.coarse(e.ts)] -= n
	}
}

// takeNewest takes n from the newest buckets.
func (k *truth) takeNewest(n int64) {
	starts := slices.Sorted(maps.Keys(k.buckets))
	slices.Reverse(starts)
	for _, start := range starts {
		d := max(0, min(n, k.buckets[start]))
		k.buckets[start] -= d
		n -= d
	}
}
