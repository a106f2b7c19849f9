package simtest

import (
	"slices"
	"time"

	"twotier.dev/twotier/syncer"
)

// checkLevels checks that all levels of a key that reach back to the beginning have the same sum in
// Redis, r. They differ by up to uneven if Redis has lost data, see unevenness.
func (w *world) checkLevels(key string, r, uneven int64) {
	if !w.plan.kind.loses() {
		uneven = 0
	}
	for _, level := range w.longLevels() {
		if n := w.storedAt(key, level); n < r-uneven || n > r+uneven {
			w.t.Errorf("%s: Redis has %d in level %d, %d in the coarsest, which may differ by %d",
				key, n, level, r, uneven)
		}
	}
}

// longLevels returns the levels, but the coarsest, that have everything that is counted in a
// schedule.
func (w *world) longLevels() (list []uint8) {
	for level := range w.coarsest() {
		if w.ladder.Levels()[level].Span() >= time.Hour {
			list = append(list, level)
		}
	}
	return list
}

// unevenness returns by how much the levels of a key may differ in Redis. They do if Redis lost the
// key after several nodes had counted it, and a node that counted it could not restore its part.
//
// The answer to a flush says what the flushed buckets hold. For a coarse bucket that includes what
// other nodes counted in fine ones that this node did not touch, and knows nothing of until it
// reads the key again. So if all live that counted the key, they restore all levels alike, and
// otherwise what they know is compared at the moment of the loss. If one of them ends before it has
// restored its part, up to everything that was lost may be missing in some levels.
func (w *world) unevenness(a *account) int64 {
	n := a.uneven
	for _, r := range a.restores {
		if w.endedWithin(r.at, r.at.Add(w.plan.stale())) {
			n += r.n
		}
	}
	return n
}

// restore is a complete loss of a key that several nodes know, of which Redis had n.
type restore struct {
	at time.Time
	n  int64
}

// restores records that Redis has lost all of a key, n.
func (l *ledger) restores(key string, n int64) {
	l.of(key, func(a *account) { a.restores = append(a.restores, restore{time.Now(), n}) })
}

// unevenly records that up to n of a key is restored in some levels only, or twice in some.
func (l *ledger) unevenly(key string, n int64) {
	l.of(key, func(a *account) { a.uneven += n + a.taken + a.less })
}

// endedWithin reports whether any process ended in a period.
func (w *world) endedWithin(from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.all, func(p *proc) bool {
		at := time.Unix(0, p.ended.Load())
		return !at.Before(from) && !at.After(to)
	})
}

// contents are the buckets of a key, without their counts, and these.
type contents map[syncer.Bucket]int64

// restorable returns what Redis would hold, if it lost everything now, once all processes have
// restored what they know: of each bucket the highest count.
func (w *world) restorable() map[string]contents {
	keys := map[string]contents{}
	for _, p := range w.living() {
		p.counter.Restorable(func(_, key []byte, buckets []syncer.Bucket) {
			known := keys[string(key)]
			if known == nil {
				known = contents{}
				keys[string(key)] = known
			}
			for _, b := range buckets {
				id := syncer.Bucket{Level: b.Level, Index: b.Index}
				known[id] = max(known[id], b.N)
			}
		})
	}
	return keys
}

// spread returns by how much the levels that reach back to the beginning differ from the coarsest.
func (w *world) spread(known contents) (most int64) {
	sums := map[uint8]int64{}
	for b, n := range known {
		sums[b.Level] += n
	}
	for _, level := range w.longLevels() {
		d := sums[level] - sums[w.coarsest()]
		most = max(most, d, -d)
	}
	return most
}
