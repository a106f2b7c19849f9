package syncer

import (
	"cmp"
	"math"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// longLog is the size of the log of a shared key from which on its owner rewrites the key. Others
// have to notice that, so it must not happen at each flush.
const longLog = 256

// keyLogs has the LoadedLog of keys that are not shared, in a partition that has shared keys. There
// a rewritten key must keep what a paused borrower, whose loan is over, has added in a quiet round.
type keyLogs map[string]int

// mostLogs bounds the keys of keyLogs. A key that has none is loaded before it is rewritten.
const mostLogs = 1024

// set records what was loaded of a key.
func (l *keyLogs) set(shared loans.Keys, k *store.KeyRound) {
	l.take(shared, k.NS, k.Key)
	switch of := shared.Find(k.NS, k.Key); {
	case len(shared) == 0:
		*l = nil
	case of != nil:
		of.Log = k.LoadedLog
	default:
		if *l == nil || len(*l) >= mostLogs {
			*l = keyLogs{}
		}
		(*l)[rounds.LoadName(k.NS, k.Key)] = k.LoadedLog
	}
}

// take returns what was recorded of a key, and forgets it: the log is about to change.
func (l *keyLogs) take(shared loans.Keys, ns, key []byte) (n int, found bool) {
	if len(*l) > 0 {
		name := rounds.LoadName(ns, key)
		n, found = (*l)[name]
		delete(*l, name)
	}
	if of := shared.Find(ns, key); of != nil {
		n, found, of.Log = of.Log, of.Log > 0, 0
	}
	return n, found
}

// addContent adds to a round all that a key has in the store once it has counted the Adds, if that
// is certain: nobody else may have changed the key since it was loaded, and nothing is taken back
// that it does not have. It reports whether it did.
func (f *flushing) addContent(r *rounds.Round, k *rounds.Part, e keys.Entry,
	adds []store.Bucket) (added bool) {
	log, known := f.logs.take(f.shared, k.NS, k.Key)
	if len(adds) == 0 && !k.Renew || e.IsValues() || k.Reset || k.New || !f.knows(e) {
		return false
	}
	l, synced, pending := f.keys.Ladder(e), f.keys.SyncedOf(e), f.keys.PendingOf(e)
	marked := hasMark(l, synced) || hasMark(l, pending)
	rewrite := e.NeedsRewrite() || marked || slices.ContainsFunc(adds, holdsNone) ||
		synced.HasForeign() || pending.HasForeign()
	switch {
	case len(adds) == 0 && !rewrite:
		return false
	case e.HasFlag(keys.FlagShared):
		if log < longLog || f.ownership != owned {
			return false
		}
		rewrite, k.ContentLog = true, log
	case !rewrite:
	case len(f.shared) == 0:
		k.ContentLog = store.WholeLog
	case !known:
		return false
	default:
		k.ContentLog = log
	}
	widest := int64(math.MaxInt64)
	if !rewrite {
		widest = slices.MaxFunc(adds, func(a, b store.Bucket) int {
			return cmp.Compare(a.Width, b.Width)
		}).Width
	}
	list := r.AddContent(k, func(to []store.Bucket) []store.Bucket {
		return appendCells(to, l, widest, synced, pending)
	})
	if len(list) == 0 || slices.ContainsFunc(list, func(b store.Bucket) bool { return b.N < 0 }) {
		r.DropContent(k)
		return false
	}
	if k.Rewrite = rewrite; rewrite {
		e.SetRewrite(marked) // memory forgets a mark once there are later events
	}
	return true
}

// knows reports whether what memory has of a key certainly is all that the store has.
func (f *flushing) knows(e keys.Entry) bool {
	return f.warm(e) && !e.NeedsRead() && !f.store.MayHaveChanged()
}

func hasMark(l *leaparray.Ladder, c leaparray.Counter) bool {
	_, marked := l.Marked(c)
	return marked
}

// appendCells appends the cells of counters up to a width, and their marks.
func appendCells(to []store.Bucket, l *leaparray.Ladder, widest int64,
	counters ...leaparray.Counter) []store.Bucket {
	for _, c := range counters {
		l.EachUpTo(c, widest, func(at leaparray.Stretch, n int64) {
			to = append(to, store.Bucket{Stretch: at, N: n})
		})
		if mark, ok := l.Marked(c); ok {
			to = append(to, store.Bucket{Stretch: mark})
		}
	}
	return to
}

// readAgain changes a round that is sent once more: the store may have applied it, and others may
// have changed its keys since. So it reads them, and their content is no longer known.
func (f *flushing) readAgain(r *rounds.Round) {
	for i := range r.Parts {
		k := &r.Parts[i]
		counts := len(k.Adds) > 0 && !k.Adds[0].IsValue()
		if at := f.refOf(k); at != 0 && (counts || k.Content != nil) {
			f.keys.EntryAt(at).SetRewrite(true)
		}
		k.Content, k.Rewrite = nil, false
		k.Load = k.Load || counts && !k.Forgotten
	}
}

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

// settleValues is settleAdds for a key of different values.
func (b *ledger) settleValues(k *rounds.Part, e keys.Entry, load bool) {
	told := slices.SortedFunc(slices.Values(k.Adds), func(a, b store.Bucket) int {
		return cmp.Compare(a.ValueHash(), b.ValueHash())
	})
	if !load && !b.keys.AcknowledgeValues(e, told) {
		e.SetGen(b.store.Generation - 1)
	}
	b.keys.DropPendingValues(e, told)
}
