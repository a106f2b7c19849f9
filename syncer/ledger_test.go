package syncer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/room"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/internal/shifts"
)

const testSecond = int64(1_700_000_000_000)

// second returns the bucket of testSecond with a count.
func second(n int64) Bucket {
	return Bucket{Stretch: leaparray.Stretch{Start: testSecond, Width: 1000}, N: n}
}

// newLedger returns the ledger of a partition without a counter.
func newLedger(t testing.TB) *ledger {
	t.Helper()
	l, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Second, Count: 60})
	if err != nil {
		t.Fatal(err)
	}
	names := keys.NewNamespaces()
	opt := Options{Namespaces: map[string]Namespace{twotier.DefaultNamespace: {Ladder: l}}}
	if err := opt.addNamespaces(&names); err != nil {
		t.Fatal(err)
	}
	b := &ledger{id: 3, mostKeys: 512, listing: &listing{}}
	now := keys.Clock{Now: func() int64 { return testSecond }, Opened: testSecond}
	b.keys = keys.New(slab.New(1<<22), &names, now)
	b.keys.Stored = &keys.StoredHashes{}
	b.owed.room = room.New(0, time.Second, func() {})
	b.outbox.Writer = "w"
	b.dirty.Shift = shifts.New(1, time.Second, time.Second).All()[0]
	return b
}

// at returns a key's entry, and makes it if there is none.
func (b *ledger) at(key string) keys.Entry {
	hash := b.keys.Names.Hash(nil, []byte(key))
	r := b.keys.Find(hash, nil, []byte(key))
	if r == 0 {
		r = b.keys.InsertCold(hash, nil, []byte(key))
	}
	return b.keys.EntryAt(r)
}

// add counts events of a key, as an operation does.
func (b *ledger) add(key string, n int64) {
	e := b.at(key)
	b.keys.Count(e, b.keys.Ladder(e), testSecond, n, testSecond)
	b.markDirty(b.keys.Find(b.keys.Names.Hash(nil, []byte(key)), nil, []byte(key)), e)
	b.dirty.Due = true
}

// sums returns the two numbers of a key.
func (b *ledger) sums(key string) (synced, pending int64) {
	e := b.at(key)
	l := b.keys.Ladder(e)
	return l.Total(b.keys.SyncedOf(e)), l.Total(b.keys.PendingOf(e))
}

// hear records the epoch and version that the store reports.
func (b *ledger) hear(epoch, version uint64) {
	b.store.SetReported(rounds.StoreVersion{Epoch: epoch, Version: version})
	b.store.VerifiedAt = time.Now()
}

// fakeBudget either has room or has none.
type fakeBudget struct {
	full  bool
	eased int
}

func (f *fakeBudget) admitKey(int, int, uint32) error {
	if f.full {
		return twotier.ErrFull
	}
	return nil
}

func (f *fakeBudget) ensureRoom(int, uint32) bool { return !f.full }
func (f *fakeBudget) makeRoomForSynced(uint32)    { f.eased++ }

// fakeStore applies rounds without any of the checks of a store.
type fakeStore struct {
	epoch, version uint64
	counts         map[string]map[leaparray.Stretch]int64
}

func (s *fakeStore) answer(r *rounds.Round) {
	if s.counts == nil {
		s.epoch, s.counts = 7, map[string]map[leaparray.Stretch]int64{}
	}
	if r.Seq != 0 {
		s.version++
	}
	r.Epoch, r.Version = s.epoch, s.version
	for i := range r.Keys {
		k := &r.Keys[i]
		held := s.counts[string(k.Key)]
		if held == nil {
			held = map[leaparray.Stretch]int64{}
			s.counts[string(k.Key)] = held
		}
		for j := range k.Adds {
			if held[k.Adds[j].Stretch] += k.Adds[j].N; r.Republish {
				held[k.Adds[j].Stretch] = k.Adds[j].N
			}
			k.Adds[j].Stored = held[k.Adds[j].Stretch]
		}
		for at, n := range held {
			if k.Load {
				k.Loaded = append(k.Loaded, Bucket{Stretch: at, N: n})
			}
		}
	}
}

func (s *fakeStore) has(key string) (n int64) {
	for _, held := range s.counts[key] {
		n += held
	}
	return n
}

// keysOf returns the names of a round's keys, in order.
func keysOf(r *rounds.Round) (names []string) {
	for i := range r.Keys {
		names = append(names, string(r.Keys[i].Key))
	}
	slices.Sort(names)
	return names
}

var errLostReply = errors.New("no answer")

// TestOwedKeysTakeRoomWhileTheStoreTakesThem checks the owed keys that a ledger reports to the
// flusher.
func TestOwedKeysTakeRoomWhileTheStoreTakesThem(t *testing.T) {
	b := newLedger(t)
	owed := func() int64 { return b.owed.room.Stats().Owed }
	b.add("a", 1)
	b.add("b", 1)
	b.add("a", 1)
	if owed() != 2 {
		t.Errorf("two keys wait for the store, the flusher knows of %d", owed())
	}
	b.outbox.Retry.Fail(time.Now())
	if b.reportOwed(); owed() != 0 {
		t.Errorf("the store takes nothing, and %d keys take room of others", owed())
	}
	b.outbox.Retry.Succeed()
	if b.reportOwed(); owed() != 2 {
		t.Errorf("the store takes them again: %d", owed())
	}
	b.ownership = sealed
	if b.reportOwed(); owed() != 0 {
		t.Errorf("the store is not told of what is sealed, and %d keys take room", owed())
	}
}

// TestWarmIsOfThisGeneration loads a key, and then others change the partition.
func TestWarmIsOfThisGeneration(t *testing.T) {
	b := newLedger(t)
	e := b.at("k")
	if b.warm(e) || b.everLoaded(e) {
		t.Error("nobody has loaded it yet")
	}
	b.applyLoaded(e, []Bucket{second(5)})
	if synced, _ := b.sums("k"); synced != 5 || !b.warm(e) {
		t.Errorf("loaded: %d, warm: %v", synced, b.warm(e))
	}
	b.store.BeginGeneration()
	if b.warm(e) || !b.everLoaded(e) {
		t.Error("others have changed the partition since it was loaded")
	}
	b.setWarm(e)
	b.outbox.MaybeSent = true
	if b.warm(e) {
		t.Error("what the store said may or may not include what others send")
	}
}

// TestAbsenceEndsWithADrop learns that the store has nothing of a key, then counts and drops the
// key.
func TestAbsenceEndsWithADrop(t *testing.T) {
	b := newLedger(t)
	hash := b.keys.Names.Hash(nil, []byte("k"))
	a := b.newAbsence()
	if !b.stillAbsent(a, hash) {
		t.Fatal("nothing has changed")
	}
	b.at("k")
	b.keys.Drop(hash, b.keys.Find(hash, nil, []byte("k")))
	if b.stillAbsent(a, hash) {
		t.Error("it was counted and dropped: the store may have it")
	}
	a = b.newAbsence()
	if b.store.BeginGeneration(); b.stillAbsent(a, hash) {
		t.Error("others may have counted it")
	}
}

// TestRebuildMovesWhatRefersToEntries drops most keys, so that the others are moved together.
func TestRebuildMovesWhatRefersToEntries(t *testing.T) {
	b := newLedger(t)
	for i := range 5000 {
		b.at(fmt.Sprint("gone", i))
	}
	b.add("stays", 3)
	for i := range 5000 {
		name := []byte(fmt.Sprint("gone", i))
		hash := b.keys.Names.Hash(nil, name)
		b.keys.Drop(hash, b.keys.Find(hash, nil, name))
	}
	before := b.keys.BlockWords()
	b.outbox.Flight = b.newRound()
	if b.rebuild(); b.keys.BlockWords() != before {
		t.Fatal("entries were moved while a round refers to them")
	}
	b.outbox.Flight = nil
	if b.rebuild(); b.keys.BlockWords() >= before {
		t.Fatalf("%d words before, %d after", before, b.keys.BlockWords())
	}
	ns, key := b.keys.EntryAt(b.dirty.Listed()[0]).Name()
	if string(key) != "stays" || len(ns) > 0 {
		t.Errorf("the dirty list refers to %q", key)
	}
	if _, pending := b.sums("stays"); pending != 3 {
		t.Errorf("%d are pending, want 3", pending)
	}
}
