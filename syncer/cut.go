package syncer

import (
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// cutPending adds an entry's pending buckets to a round. fresh reports that the store has no counts
// in the bucket of the coarsest level that contains one of them, or the mark. listed reports that
// this is no reason to list the key again.
func (b *ledger) cutPending(r *rounds.Round, e keys.Entry) (fresh, listed bool) {
	l, pending, synced := b.keys.Ladder(e), b.keys.PendingOf(e), b.keys.SyncedOf(e)
	listed = true
	look := func(at leaparray.Stretch) {
		if !heldIn(l, synced, at, 1) {
			fresh, listed = true, listed && heldIn(l, synced, at, listGroup(l))
		}
	}
	l.Each(pending, func(at leaparray.Stretch, n int64) bool {
		r.AddBucket(store.Bucket{Stretch: at, N: n}, l.Value(synced, at))
		look(at)
		return true
	})
	if b.keys.OwesMark(e, l) {
		mark, _ := l.Marked(pending)
		r.AddBucket(store.Bucket{Stretch: mark}, 0)
		look(mark)
	}
	return fresh, fresh && listed
}

// began reports whether the round may have created the key in the store, although it was cut as if
// the store had some of its counts. That is so if a bucket of the coarsest level has nothing but
// the round's Adds, or if a bucket has less than its known count.
func (b *ledger) began(e keys.Entry, k *rounds.Part) bool {
	l, synced := b.keys.Ladder(e), b.keys.SyncedOf(e)
	for i := range k.Adds {
		add := &k.Adds[i]
		if add.Stored < k.KnownAt(i)+add.N || add.N != 0 && add.Stored == add.N &&
			!heldIn(l, synced, add.Stretch, 1) {
			return true
		}
	}
	return false
}

// heldIn reports whether the store is known to hold counts of a key in the group of this many
// buckets of the coarsest level that contains the start of at.
func heldIn(l *leaparray.Ladder, synced leaparray.Counter, at leaparray.Stretch, group int64) bool {
	width := l.Coarsest() * group
	from := at.Start - at.Start%width
	v := leaparray.View{Ladder: l, A: synced}
	return v.Hi(from, from+width-1) != 0
}
