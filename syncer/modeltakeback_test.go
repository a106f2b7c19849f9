package syncer_test

import (
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// takeBack takes from each bucket no more than was counted in it, whether or not it is in memory.
// Without a time that is from the newest ones.
func (w *world) takeBack(key string, k *truth, op *syncer.Op, ts int64) {
	op.Checks[0].N = -op.Checks[0].N
	k.taken = true
	if !w.do(w.c, op, []string{key}, new(syncer.Result)) {
		return
	}
	s := w.ladder.Stamp(ts)
	for level := range w.ladder.Len() {
		if op.TS == 0 {
			k.takeNewest(w.ladder, level, ts, -op.Checks[0].N)
			continue
		}
		b := [2]int64{int64(level), s[level]}
		k.buckets[b] -= min(-op.Checks[0].N, k.buckets[b])
	}
}

// takeNewest takes n from the newest buckets of a level that has not lost them.
func (k *truth) takeNewest(l *leaparray.Ladder, level int, now, n int64) {
	var held []int64
	for b := range k.buckets {
		if b[0] == int64(level) {
			held = append(held, b[1])
		}
	}
	slices.SortFunc(held, func(a, b int64) int { return int(b - a) })
	if len(held) == 0 {
		return
	}
	oldest := max(held[0], l.Index(level, now)) - l.Keep(level)
	for _, idx := range held {
		b := [2]int64{int64(level), idx}
		if d := min(n, k.buckets[b]); d > 0 && idx >= oldest {
			k.buckets[b] -= d
			n -= d
		}
	}
}
