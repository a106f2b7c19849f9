package syncer

import (
	"errors"
	"slices"
	"testing"
	"time"
	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// newHandoff returns the handoff of a separate ledger that knows the store's version.
func newHandoff(t testing.TB) *handoff {
	f, budget := newFlushing(t)
	f.hear(7, 1)
	s := &restoration{ledger: f.ledger, loads: f.loads, totals: f.totals}
	return &handoff{ledger: f.ledger, flushing: f, loads: f.loads, restoration: s, budget: budget}
}

// sealedHandoff returns a handoff with a key that the store knows, a round without an answer, and
// later counts.
func sealedHandoff(t testing.TB) *handoff {
	h := newHandoff(t)
	h.applyLoaded(h.at("known"), []Bucket{second(6)})
	h.add("k", 2)
	r := h.flushing.cut(time.Now())
	r.Err = errLostReply
	h.flushing.fail(r)
	h.add("k", 3)
	h.prepare()
	return h
}

// TestAHandoffIsInPages hands everything to another ledger, in pages of one item each.
func TestAHandoffIsInPages(t *testing.T) {
	from, to := sealedHandoff(t), newHandoff(t)
	pages := 0
	for cursor, done := uint64(0), false; !done; pages++ {
		page, next, err := from.page(cursor, 1)
		if err != nil || len(page.Rounds)+len(page.Keys) > 1 {
			t.Fatalf("page %d: %+v, %v", pages, page, err)
		}
		to.accept(page, false)
		cursor, done = next, next == 0
	}
	if synced, _ := to.sums("known"); synced != 6 || pages < 3 {
		t.Errorf("%d are known, told in %d pages", synced, pages)
	}
	if _, pending := to.sums("k"); pending != 5 || len(to.outbox.Queue) != 2 ||
		!to.outbox.MaybeSent {
		t.Errorf("%d are pending in %d rounds, maybe sent: %v", pending, len(to.outbox.Queue),
			to.outbox.MaybeSent)
	}
	again, _, err := from.page(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	to.accept(again, false)
	if _, pending := to.sums("k"); pending != 5 {
		t.Errorf("told twice, %d are pending", pending)
	}
}

// TestAKeyThatIsRefusedTwiceIsParkedOnce: the store refuses a key in both rounds that a handoff has
// left. The key is tried again once, with all its pending counts.
func TestAKeyThatIsRefusedTwiceIsParkedOnce(t *testing.T) {
	h, store := sealedHandoff(t), &fakeStore{}
	h.cancel()
	for range 2 {
		r := h.flushing.cut(time.Now())
		(&fakeStore{}).answer(r)
		r.Keys[0].Err = ErrRefused
		h.flushing.settle(r)
	}
	r := h.flushing.cut(time.Now().Add(2 * rounds.ParkedPause))
	if r == nil || !slices.Equal(keysOf(r), []string{"k"}) {
		t.Fatalf("%+v is sent after the pause", r)
	}
	store.answer(r)
	h.flushing.settle(r)
	if _, pending := h.sums("k"); pending != 0 || store.has("k") != 5 {
		t.Errorf("5 were counted: %d are pending, the store has %d", pending, store.has("k"))
	}
}

// TestAHandoffThatIsCanceled resumes flushing, with the same rounds first.
func TestAHandoffThatIsCanceled(t *testing.T) {
	h := sealedHandoff(t)
	_, cursor, err := h.page(0, 1)
	if err != nil || cursor == 0 {
		t.Fatal(cursor, err)
	}
	if !h.includesKey(h.keys.Names.Hash(nil, []byte("k")), nil, []byte("k")) {
		t.Error("the key is not part of what is offered")
	}
	if !h.cancel() || h.cancel() {
		t.Error("it is canceled once")
	}
	if _, pending := h.sums("k"); pending != 5 || !h.outbox.MaybeSent {
		t.Errorf("%d are pending, maybe sent: %v", pending, h.outbox.MaybeSent)
	}
	for seq := uint64(1); seq <= 2; seq++ {
		r := h.flushing.cut(time.Now())
		if r == nil || r.Writer != "w" || r.Seq != seq {
			t.Fatalf("%+v goes, want number %d", r, seq)
		}
		(&fakeStore{epoch: 7}).answer(r)
		h.flushing.settle(r)
	}
	if _, pending := h.sums("k"); pending != 0 || h.outbox.MaybeSent {
		t.Errorf("%d are pending, maybe sent: %v", pending, h.outbox.MaybeSent)
	}
	h.prepare()
	if _, _, err := h.page(cursor, 1); err == nil {
		t.Error("a cursor of the handoff before is taken")
	}
}

// TestWhatWasToldMayBeSent cancels a handoff whose pages were read, or were not.
func TestWhatWasToldMayBeSent(t *testing.T) {
	for _, told := range []bool{false, true} {
		h := newHandoff(t)
		h.add("k", 1)
		h.prepare()
		if told {
			if _, _, err := h.page(0, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if h.cancel(); h.outbox.MaybeSent != told {
			t.Errorf("told: %v, maybe sent: %v", told, h.outbox.MaybeSent)
		}
	}
}

// TestAHandoffThatIsFinished leaves nothing behind except the used name.
func TestAHandoffThatIsFinished(t *testing.T) {
	h := sealedHandoff(t)
	w := h.loads.Request(1, nil, []byte("late"))
	h.finish("w")
	if h.keys.Len() != 0 || h.keys.PendingBuckets != 0 || !h.outbox.IsEmpty() ||
		h.ownership != notOwned {
		t.Errorf("%d keys, %d buckets pending, ownership %v", h.keys.Len(),
			h.keys.PendingBuckets, h.ownership)
	}
	if h.outbox.Writer == "w" || h.store.IsKnown() || h.owed.room.Stats().Owed != 0 {
		t.Errorf("writer %s, %d keys owed", h.outbox.Writer, h.owed.room.Stats().Owed)
	}
	if w.Done {
		t.Error("who asked after it was sealed is answered by nobody")
	}
}

// TestAHandoffEndsTheWaitForLoads seals a ledger while an operation waits for a key.
func TestAHandoffEndsTheWaitForLoads(t *testing.T) {
	h := newHandoff(t)
	w := h.loads.want("k")
	if h.prepare(); !w.Done || !errors.Is(w.Err, twotier.ErrNotOwner) {
		t.Errorf("%+v", w)
	}
}

// TestAHandoffAfterALoss takes over from a counter that has noticed a loss, and from one that has
// not.
func TestAHandoffAfterALoss(t *testing.T) {
	buckets := []Bucket{second(6)}
	for _, tc := range []struct {
		name     string
		epoch    uint64
		restores bool
	}{{"the same data", 7, false}, {"the other has noticed", 8, true}, {"this one has", 6, true}} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandoff(t)
			h.applyLoaded(h.at("mine"), buckets)
			h.accept(&Handoff{Epoch: tc.epoch, Version: 1,
				Keys: []KeyState{{Key: []byte("theirs"), Buckets: buckets}}}, false)
			if h.restoration.active() != tc.restores {
				t.Fatalf("restores: %v", h.restoration.active())
			}
			if synced, _ := h.sums("theirs"); synced != 6 {
				t.Errorf("%d are known of the other's key", synced)
			}
			if !tc.restores {
				return
			}
			want := map[uint64]string{8: "mine", 6: "theirs"}[tc.epoch]
			if r := h.restoration.cut(); len(r.Keys) != 1 || string(r.Keys[0].Key) != want {
				t.Errorf("%v are restored, want %s", keysOf(r), want)
			}
		})
	}
}
