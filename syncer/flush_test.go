package syncer

import (
	"log/slog"
	"slices"
	"testing"
	"time"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// newFlushing returns the flushing of a separate ledger.
func newFlushing(t testing.TB) (*flushing, *fakeBudget) {
	budget := &fakeBudget{}
	b := newLedger(t)
	opt := &Options{MaxRoundKeys: 512, VerifyInterval: time.Hour,
		Logger: slog.New(slog.DiscardHandler)}
	width := newReadWidth(time.Second)
	loads := &loading{ledger: b, scratch: &scratch{}, width: &width, budget: budget,
		totals: &totals{}}
	return &flushing{ledger: b, loads: loads, scratch: &scratch{}, budget: budget, opt: opt,
		totals: loads.totals}, budget
}

// TestTheStoreIsAskedFirst counts before the store has reported which data it has.
func TestTheStoreIsAskedFirst(t *testing.T) {
	f, _ := newFlushing(t)
	if r := f.cut(time.Now()); r != nil {
		t.Fatalf("nothing was counted, and %+v is cut", r)
	}
	f.add("k", 2)
	first := f.cut(time.Now())
	if first == nil || len(first.Keys) != 0 || first.Seq != 0 {
		t.Fatalf("the first round is %+v, want one that only asks", first)
	}
	store := fakeStore{}
	if store.answer(first); !f.settle(first) {
		t.Error("there is more to send, and nobody hears of it")
	}
	next := f.cut(time.Now())
	if next == nil || next.Seq != 1 || !slices.Equal(keysOf(next), []string{"k"}) {
		t.Errorf("the second round is %+v", next)
	}
}

// TestAFlushMovesPendingToSynced counts while a round is in flight.
func TestAFlushMovesPendingToSynced(t *testing.T) {
	f, budget := newFlushing(t)
	f.hear(7, 0)
	store := fakeStore{}
	f.add("k", 2)
	r := f.cut(time.Now())
	f.add("k", 3)
	store.answer(r)
	f.settle(r)
	if synced, pending := f.sums("k"); synced != 2 || pending != 3 {
		t.Errorf("synced %d, pending %d; want 2 and 3", synced, pending)
	}
	if f.dirty.AckedTicket != 1 || f.dirty.LastTicket != 2 {
		t.Errorf("ticket %d of %d is acknowledged, want 1 of 2", f.dirty.AckedTicket,
			f.dirty.LastTicket)
	}
	r = f.cut(time.Now())
	store.answer(r)
	f.settle(r)
	if budget.eased != 1 {
		t.Errorf("%d times there was room made for what the store has of one key", budget.eased)
	}
	if synced, pending := f.sums("k"); synced != 5 || pending != 0 || store.has("k") != 5 {
		t.Errorf("synced %d, pending %d, the store has %d", synced, pending, store.has("k"))
	}
}

// TestARoundWithoutAnAnswerGoesAgainUnchanged counts more while the outcome of a round is unknown.
func TestARoundWithoutAnAnswerGoesAgainUnchanged(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	f.add("k", 2)
	r := f.cut(time.Now())
	r.Err = errLostReply
	f.fail(r)
	f.add("k", 3)
	f.add("other", 1)
	again := f.cut(time.Now())
	if again != r || again.Seq != 1 || len(again.Keys) != 1 || again.Keys[0].Adds[0].N != 2 {
		t.Errorf("sent again is %+v", again)
	}
	if !f.outbox.Retry.Failing() || f.dirty.AckedTicket != 0 || !r.OutcomeUnknown {
		t.Error("it is taken for acknowledged, or for not carried out")
	}
}

// TestReadWhileARoundWaits reads a key that others have counted while a round of it waits to be
// sent again. Their counts must not be added to synced once more when the round is answered.
func TestReadWhileARoundWaits(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	f.applyLoaded(f.at("k"), []Bucket{second(1)})
	f.add("k", 3)
	r := f.cut(time.Now())
	r.Err = ErrNotApplied
	f.fail(r)
	f.applyLoaded(f.at("k"), []Bucket{second(7)})
	r.Err, r.Keys[0].Adds[0].Stored = nil, 10
	f.settle(r)
	if synced, pending := f.sums("k"); synced != 10 || pending != 0 {
		t.Errorf("synced %d, pending %d, want what the store has: 10", synced, pending)
	}
}

// TestAResetLeavesNothing loads the store's counts of a key while a round that deletes it is in
// flight, as a restoration may.
func TestAResetLeavesNothing(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	store := fakeStore{}
	f.add("k", 2)
	f.setWarm(f.at("k"))
	f.at("k").SetFlags(keys.FlagReset)
	r := f.cut(time.Now())
	before := second(9)
	before.Start -= 1000
	f.applyLoaded(f.at("k"), []Bucket{before})
	if synced, _ := f.sums("k"); synced != 9 {
		t.Fatalf("synced %d, want 9", synced)
	}
	store.answer(r)
	f.settle(r)
	if synced, pending := f.sums("k"); synced != 2 || pending != 0 || store.has("k") != 2 {
		t.Errorf("synced %d, pending %d, the store has %d, want 2 there", synced, pending,
			store.has("k"))
	}
}

// TestARoundThatOnlyReadsIsGivenBack fails a round that changes nothing.
func TestARoundThatOnlyReadsIsGivenBack(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	f.at("k")
	w := f.loads.want("k")
	w.Exclusive, f.loads.Exclusive = true, true
	r := f.cut(time.Now())
	if r == nil || r.Seq != 0 || len(r.Loads) != 1 {
		t.Fatalf("%+v is cut, want a load", r)
	}
	later := f.loads.want("asked meanwhile")
	later.Exclusive, f.loads.Exclusive = true, true
	r.Err = errLostReply
	f.fail(r)
	if f.outbox.Flight != nil || f.at("k").HasFlag(keys.FlagBusy) {
		t.Error("it stays the flight")
	}
	if len(f.loads.Waiting) != 2 || f.loads.Exclusive || w.Exclusive || later.Exclusive {
		t.Error("the keys are not to be loaded beside other rounds")
	}
}

// TestAKeyThatTheStoreRefusesIsParked makes the store refuse one key of two.
func TestAKeyThatTheStoreRefusesIsParked(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	store := fakeStore{}
	f.add("bad", 2)
	f.add("good", 1)
	r := f.cut(time.Now())
	store.answer(r)
	for i := range r.Keys {
		if string(r.Keys[i].Key) == "bad" {
			r.Keys[i].Err = ErrRefused
		}
	}
	f.settle(r)
	if _, pending := f.sums("bad"); pending != 2 || !f.at("bad").HasFlag(keys.FlagParked) {
		t.Errorf("%d are pending, parked: %v", pending, f.at("bad").HasFlag(keys.FlagParked))
	}
	if synced, _ := f.sums("good"); synced != 1 {
		t.Errorf("the other key has %d in the store", synced)
	}
	f.add("bad", 1)
	if r := f.cut(time.Now()); r != nil {
		t.Errorf("%v is sent before the pause is over", keysOf(r))
	}
	if r := f.cut(time.Now().Add(2 * rounds.ParkedPause)); r == nil ||
		!slices.Equal(keysOf(r), []string{"bad"}) {
		t.Errorf("%+v is sent after the pause", r)
	}
}

// TestANameThatIsUsedElsewhere: the store knows another round with this writer and sequence.
func TestANameThatIsUsedElsewhere(t *testing.T) {
	f, _ := newFlushing(t)
	f.hear(7, 0)
	f.add("k", 1)
	r := f.cut(time.Now())
	nonce := r.Nonce
	f.changeWriter(r)
	again := f.cut(time.Now())
	if again != r || r.Writer == "w" || r.Writer != f.outbox.Writer || r.Nonce == nonce {
		t.Errorf("it goes again as %+v", again)
	}
}
