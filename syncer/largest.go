package syncer

import (
	"cmp"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// mostWeighed is how many keys compete for the half of a round with the largest counts. The next
// round weighs other keys.
//
// When more keys wait than the store accepts in a moment, a round holds only a part of a
// partition's dirty keys. Half of it goes to the keys that have waited longest, so that none waits
// for ever. The other half goes to the keys with the largest pending counts, so that a crash loses
// as little as possible. At the pace last measured, every partition in the queue has a turn within
// a second, see [room.Room.RoundKeys].
const mostWeighed = 4096

// weighed is an entry and the size of its pending counts.
type weighed struct {
	at arena.Ref
	n  int64
}

// addLargest adds the keys with the largest pending counts, out of turn, if not all keys fit into
// the round. They stay on the dirty list. When their turn comes, they only flush newer counts, if
// any.
func (f *flushing) addLargest(r *rounds.Round, now time.Time) {
	some, pause := f.dirty.Listed(), 2*f.opt.FlushInterval
	if !f.dirty.IsDue() || len(some) <= r.Most || f.overdue(now) ||
		now.Sub(f.dirty.WeighedAt) < pause {
		return
	}
	f.dirty.WeighedAt = now
	if f.dirty.Weighed >= len(some) {
		f.dirty.Weighed = 0
	}
	some = some[f.dirty.Weighed:min(len(some), f.dirty.Weighed+mostWeighed)]
	f.dirty.Weighed += len(some)
	found := f.scratch.weighed[:0]
	for part := range slices.Chunk(some, keys.PrefetchAtOnce) {
		f.keys.Prefetch(part)
		for _, at := range part {
			if n := f.keys.PendingWeight(f.keys.EntryAt(at)); n > 1 {
				found = append(found, weighed{at, n})
			}
		}
	}
	slices.SortFunc(found, func(a, b weighed) int { return cmp.Compare(b.n, a.n) })
	f.scratch.weighed = found
	for _, w := range found[:min(len(found), r.Most/2)] {
		if r.Full() {
			return
		}
		e := f.keys.EntryAt(w.at)
		f.addEntry(r, w.at, e, e.HasFlag(keys.FlagCold))
	}
}
