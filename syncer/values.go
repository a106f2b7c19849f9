package syncer

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// This file is what rounds do differently with keys of different values: the later time of a value
// stays, so a value that is sent twice, or by two counters, changes nothing.

// cutValues adds an entry's pending values to a round, and those that the store need not keep. The
// results are those of cutPending.
func (b *ledger) cutValues(r *rounds.Round, e keys.Entry) (fresh, listed bool) {
	v, l := b.keys.ValuesOf(e), b.keys.Ladder(e)
	for pending := v.B; len(pending) > 0; pending = pending[2:] {
		r.Buckets = append(r.Buckets,
			store.Bucket{Stretch: leaparray.ValueAt(pending[0]), N: int64(pending[1])})
	}
	b.keys.EachIdleValue(e, r.Now, func(hash uint64, seen int64) {
		if v.B.Seen(hash) == 0 {
			r.Buckets = append(r.Buckets,
				store.Bucket{Stretch: leaparray.ValueAt(hash), N: -seen})
		}
	})
	if len(v.B) == 0 {
		return false, false
	}
	known, newest, width := v.A.Latest(), v.B.Latest(), l.CoarsestWidth()
	group := width * bucketsPerListGroup(l)
	fresh = known < newest-newest%width
	return fresh, fresh && known >= newest-newest%group
}

// toldOf returns what a round has told the store of the values of a key, and the outcome, in the
// order of their hashes.
func toldOf(k *rounds.Part) []keys.SeenValue {
	told := make([]keys.SeenValue, len(k.Adds))
	for i := range k.Adds {
		add := &k.Adds[i]
		told[i] = keys.SeenValue{Hash: add.ValueHash(), N: add.N, Stored: add.Stored}
	}
	slices.SortFunc(told, func(a, b keys.SeenValue) int { return cmp.Compare(a.Hash, b.Hash) })
	return told
}

// settleValues is settleAdds for a key of different values.
func (b *ledger) settleValues(k *rounds.Part, e keys.Entry, load bool) {
	told := toldOf(k)
	if !load && !b.keys.AcknowledgeValues(e, told) {
		e.SetGen(b.store.Generation - 1)
	}
	b.keys.DropPendingValues(e, told)
}
