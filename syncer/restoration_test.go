package syncer

import (
	"fmt"
	"log/slog"
	"testing"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// newRestoration returns the restoration of a ledger with this many keys, of one event each, that
// the store has.
func newRestoration(t testing.TB, keys int) *restoration {
	f, _ := newFlushing(t)
	f.hear(7, uint64(keys))
	for i := range keys {
		f.applyLoaded(f.at(fmt.Sprint("k", i)), []Bucket{second(1)})
	}
	return &restoration{ledger: f.ledger, loads: f.loads, totals: f.totals,
		report: &reporter{log: slog.New(slog.DiscardHandler)}}
}

// restore applies parts until there are no more, and returns how many there were. If refuse is set,
// the store refuses that key.
func (s *restoration) restore(t testing.TB, store *fakeStore, refuse string) (parts int) {
	t.Helper()
	for ; s.active(); parts++ {
		if parts > 20 {
			t.Fatal("it does not end")
		}
		r := s.cut()
		if !r.Republish || r.Seq != uint64(parts)+1 {
			t.Fatalf("part %d is number %d", parts, r.Seq)
		}
		store.answer(r)
		for i := range r.Keys {
			if string(r.Keys[i].Key) == refuse {
				r.Keys[i].Err = ErrRefused
			}
		}
		s.settle(r)
	}
	return parts
}

// TestARestorationTellsAllThatIsKnown restores more keys than go into one part.
func TestARestorationTellsAllThatIsKnown(t *testing.T) {
	s := newRestoration(t, 10)
	s.mostKeys = 4
	s.outbox.Flight = &rounds.Round{Round: Round{Writer: "w", Seq: 9, Acked: 8}}
	store := fakeStore{epoch: 8, counts: map[string]map[leaparray.Stretch]int64{}}
	before := s.store.Generation
	s.beginAfterLoss(rounds.StoreVersion{Epoch: 8})
	if parts := s.restore(t, &store, ""); parts != 3 {
		t.Errorf("%d parts, want 3", parts)
	}
	for i := range 10 {
		if n := store.has(fmt.Sprint("k", i)); n != 1 {
			t.Errorf("the store has %d of k%d", n, i)
		}
	}
	if s.totals.losses.Load() != 1 || s.store.Generation == before || s.store.Reported.Epoch != 8 {
		t.Errorf("%d losses, generation %d, %+v", s.totals.losses.Load(), s.store.Generation,
			s.store.Reported)
	}
	if s.outbox.Flight.Acked != 0 || s.outbox.Writer == "w" {
		t.Errorf("what could not be sent says %d of the old epoch, writer %s",
			s.outbox.Flight.Acked, s.outbox.Writer)
	}
}

// TestARestorationOfNothing finds a loss when memory has nothing to restore.
func TestARestorationOfNothing(t *testing.T) {
	s := newRestoration(t, 0)
	if s.beginAfterLoss(rounds.StoreVersion{Epoch: 8}); s.active() || s.store.Reported.Epoch != 8 {
		t.Errorf("active %v, told %+v", s.active(), s.store.Reported)
	}
	// In the lost epoch, not every counter would learn of the loss.
	if s.beginAfterLoss(rounds.StoreVersion{Epoch: 8, Version: 1}); !s.active() {
		t.Error("no epoch is drawn")
	}
}

// TestARestorationIsLostItself: the store loses data again while it is restored.
func TestARestorationIsLostItself(t *testing.T) {
	s := newRestoration(t, 2)
	s.beginAfterLoss(rounds.StoreVersion{Epoch: 8})
	r, writer := s.cut(), s.outbox.Writer
	r.Lost, r.Epoch = true, 9
	s.settle(r)
	if !s.active() || s.job.next != 0 || s.job.after != 8 || s.outbox.Writer == writer {
		t.Errorf("%+v as %s", s.job, s.outbox.Writer)
	}
	store := fakeStore{epoch: 9, counts: map[string]map[leaparray.Stretch]int64{}}
	if s.restore(t, &store, ""); store.has("k0") != 1 || store.has("k1") != 1 {
		t.Errorf("the store has %+v", store.counts)
	}
}

// TestARestorationGivesUpAKeyThatIsRefused does so after some tries.
func TestARestorationGivesUpAKeyThatIsRefused(t *testing.T) {
	s := newRestoration(t, 2)
	store := fakeStore{epoch: 8, counts: map[string]map[leaparray.Stretch]int64{}}
	s.beginAfterLoss(rounds.StoreVersion{Epoch: 8})
	if parts := s.restore(t, &store, "k1"); parts != 1+restoreRetries {
		t.Errorf("%d parts, want %d", parts, 1+restoreRetries)
	}
}

// TestAResetBeforeItsPart resets a key that another counter knew before it is restored.
func TestAResetBeforeItsPart(t *testing.T) {
	s := newRestoration(t, 1)
	s.beginAfterLoss(rounds.StoreVersion{Epoch: 8})
	s.alsoRestore(7, []KeyState{{Key: []byte("theirs"),
		Buckets: []Bucket{second(6)}}})
	s.at("theirs").SetFlags(keys.FlagReset)
	s.restore(t, &fakeStore{epoch: 8, counts: map[string]map[leaparray.Stretch]int64{}}, "")
	if synced, _ := s.sums("theirs"); synced != 0 {
		t.Errorf("%d came back", synced)
	}
}

// TestAResetIsNotRestored resets a key while a part that restores it is in flight.
func TestAResetIsNotRestored(t *testing.T) {
	s := newRestoration(t, 1)
	s.beginAfterLoss(rounds.StoreVersion{Epoch: 8})
	r := s.cut()
	e := s.at("k0")
	hash := s.keys.Names.Hash(nil, []byte("k0"))
	s.forget(s.keys.Find(hash, nil, []byte("k0")), hash, e)
	s.erase(s.keys.Find(hash, nil, []byte("k0")), e, s.keys.Ladder(e))
	(&fakeStore{epoch: 8, counts: map[string]map[leaparray.Stretch]int64{}}).answer(r)
	if s.settle(r); s.active() {
		t.Error("it goes on")
	}
	if synced, _ := s.sums("k0"); synced != 0 {
		t.Errorf("%d came back", synced)
	}
}
