package keys_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// foldedKey is a key whose events are in narrow buckets in memory, and in a wide one in the store,
// where another writer has folded them and may have counted more.
type foldedKey struct {
	*keys.Keyspace
	l    *leaparray.Ladder
	wide leaparray.Stretch
	// known is the sum in memory of the store's counts, and more what the store has beyond it.
	known, folded, more int64
}

// newFoldedKey returns the entry of a key with random events, some seconds before now.
func newFoldedKey(s *keys.Keyspace, names *keys.Namespaces, rnd *rand.Rand,
	now int64) (f foldedKey, e keys.Entry) {
	key := []byte("k")
	hash := names.Hash(nil, key)
	at := s.Find(hash, nil, key)
	if at == 0 {
		at = s.InsertCold(hash, nil, key)
	}
	e = s.EntryAt(at)
	f = foldedKey{Keyspace: s, l: s.Ladder(e)}
	width := f.l.Width(rnd.IntN(3))
	f.wide = leaparray.Stretch{Start: (now - 5*width) / width * width, Width: width}
	var cells []leaparray.Cell
	for range rnd.IntN(5) {
		c := leaparray.Cell{Stretch: leaparray.Moment(f.wide.Start + rnd.Int64N(width)),
			N: 1 + rnd.Int64N(9)}
		cells, f.folded = append(cells, c), f.folded+c.N
	}
	if rnd.IntN(2) == 0 {
		cells = append(cells, leaparray.Cell{Stretch: f.wide, N: 1 + rnd.Int64N(9)})
	}
	s.ReplaceSynced(e, f.l, cells)
	f.known, f.more = f.l.Total(s.SyncedOf(e)), rnd.Int64N(3)*rnd.Int64N(9)
	return f, e
}

// TestSyncedStaysWithinTheStore acknowledges rounds whose bucket another writer has folded other
// ones into, or folded into another one. What memory then takes for the store's counts is at least
// the known and the acknowledged ones, and never more than the store has. A difference is reported,
// so that the key is read.
func TestSyncedStaysWithinTheStore(t *testing.T) {
	first := seed.First()
	t.Logf("seed %d", first)
	rnd := rand.New(rand.NewPCG(first, 2))
	names := keys.NewNamespaces()
	names.Add(&keys.Namespace{Ladder: leaparray.Default()})
	now := int64(1_700_000_000_000)
	clock := keys.Clock{Now: func() int64 { return now }, Opened: now}
	s := keys.New(slab.New(1<<24), &names, clock)
	s.Stored = &keys.StoredHashes{}
	for range 5000 {
		f, e := newFoldedKey(&s, &names, rnd, now)
		held := f.l.Value(s.SyncedOf(e), f.wide)
		b := keys.Flushed{Stretch: f.wide, N: 1 + rnd.Int64N(5), Known: held}
		switch rnd.IntN(3) {
		case 0: // into this bucket
			b.Stored = held + f.folded + f.more + b.N
		case 1: // this bucket into a wider one
			b.Stored, f.folded = f.more+b.N, -held
		default:
			b.Stored, f.folded = held+f.more+b.N, 0
		}
		expected := s.SetSynced(e, []keys.Flushed{b}, false)
		got, least := f.l.Total(s.SyncedOf(e)), f.known+b.N
		if got < least || got > least+f.more {
			t.Fatalf("%+v: %d synced, want %d to %d", b, got, least, least+f.more)
		}
		if want := f.folded+f.more == 0; expected != want && (f.folded == 0 || f.more == 0) {
			t.Fatalf("%+v: expected %v, want %v", b, expected, want)
		}
	}
}
