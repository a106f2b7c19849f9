package syncer_test

import (
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// takeBack takes back without a time, or from the buckets of one: often that of an event, or near
// it.
func (w *world) takeBack(key string, k *truth, op *syncer.Op, ts int64) {
	if op.TS == 0 && len(k.log) > 0 && w.rnd.IntN(2) == 0 {
		e := k.log[w.rnd.IntN(len(k.log))]
		ts = min(w.now(), e.ts+w.rnd.Int64N(5)*w.ladder.Width(0)*w.rnd.Int64N(2))
		op.TS = ts
	}
	if op.TS != 0 && (ts <= w.now()-w.ladder.Span() || k.unclear(w, ts)) {
		return
	}
	op.Checks[0].N = -op.Checks[0].N
	k.taken = true
	if !w.do(w.c, op, []string{key}, new(syncer.Result)) {
		return
	}
	if op.TS != 0 {
		k.takeAt(w, ts, -op.Checks[0].N)
		return
	}
	for level := range w.ladder.Len() {
		k.takeNewest(w.ladder, level, ts, -op.Checks[0].N)
	}
}

// oldest returns the oldest bucket that a level keeps, and whether it has counted anything.
func (k *truth) oldest(w *world, level int, now int64) (idx int64, counted bool) {
	head := int64(-1)
	for b := range k.buckets {
		if b[0] == int64(level) {
			head = max(head, b[1])
		}
	}
	if w.plan.aging {
		head = max(head, w.ladder.Index(level, now))
	}
	return head - w.ladder.Keep(level), head >= 0
}

// unclear reports whether a bucket of the moment is about to be lost, or may have been.
func (k *truth) unclear(w *world, ts int64) bool {
	for level := range w.ladder.Len() {
		idx := w.ladder.Index(level, ts)
		first, _ := k.oldest(w, level, w.now())
		last, _ := k.oldest(w, level, w.now()+3000)
		if idx >= first && idx <= last+1 {
			return true
		}
	}
	return false
}

// takeAt takes from the buckets of a moment as much as the finest level that keeps it holds, at
// most n. A coarser one holds less if something was taken back without a time when only it could
// still see the event.
func (k *truth) takeAt(w *world, ts, n int64) {
	s := w.ladder.Stamp(ts)
	for level := range w.ladder.Len() {
		if oldest, counted := k.oldest(w, level, w.now()); counted && s[level] >= oldest {
			n = min(n, k.buckets[[2]int64{int64(level), s[level]}])
			break
		}
	}
	for level := range w.ladder.Len() {
		b := [2]int64{int64(level), s[level]}
		if held := k.buckets[b]; held > 0 {
			k.buckets[b] = held - min(n, held)
		}
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
