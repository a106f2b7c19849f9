package syncer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// newLoading returns the loading of a separate ledger that knows the store's version.
func newLoading(t testing.TB) (*loading, *fakeBudget) {
	f, budget := newFlushing(t)
	f.hear(7, 1)
	return f.loads, budget
}

// want makes an operation wait for a key.
func (l *loading) want(key string) *rounds.PendingLoad {
	return l.Request(l.keys.Names.Hash(nil, []byte(key)), nil, []byte(key))
}

// TestALoadBringsWhatTheStoreHas loads a key that exists and one that does not.
func TestALoadBringsWhatTheStoreHas(t *testing.T) {
	l, _ := newLoading(t)
	store := fakeStore{epoch: 7, version: 1,
		counts: map[string]map[leaparray.Stretch]int64{"k": {second(4).Stretch: 4}}}
	k, none := l.want("k"), l.want("none")
	r := l.cut()
	if !r.Aside || !r.ReadOnly || !slices.Equal(keysOf(r), []string{"k", "none"}) {
		t.Fatalf("%+v is cut", r)
	}
	store.answer(r)
	if outcome := l.settle(r); outcome != loadAnswered {
		t.Errorf("the outcome is %v", outcome)
	}
	if synced, _ := l.sums("k"); !k.Done || k.Err != nil || synced != 4 || !l.warm(l.at("k")) {
		t.Errorf("%+v, synced %d", k, synced)
	}
	if !none.Done || !l.stillAbsent(none.Absence, none.Hash) {
		t.Errorf("%+v: the store has nothing of it", none)
	}
}

// TestAKeyOnItsWayIsNotLoaded asks for a key that a round in flight is writing.
func TestAKeyOnItsWayIsNotLoaded(t *testing.T) {
	l, _ := newLoading(t)
	l.at("busy").SetFlags(keys.FlagBusy)
	l.at("reset").SetFlags(keys.FlagReset)
	l.outbox.Sent = true
	l.want("busy")
	l.want("reset")
	l.want("free")
	r := l.cut()
	if !slices.Equal(keysOf(r), []string{"free"}) || len(l.Waiting) != 2 {
		t.Errorf("%v are loaded, and %d wait", keysOf(r), len(l.Waiting))
	}
}

// TestALoadThatIsOutOfDate: others change the partition while a key is loaded.
func TestALoadThatIsOutOfDate(t *testing.T) {
	l, _ := newLoading(t)
	k := l.want("k")
	r := l.cut()
	l.store.BeginGeneration()
	(&fakeStore{epoch: 7}).answer(r)
	if outcome := l.settle(r); outcome != loadFlushes || !l.Exclusive || k.Done {
		t.Errorf("outcome %v, exclusive %v, %+v", outcome, l.Exclusive, k)
	}
}

// TestALoadThatFails: a load that failed is tried again later, and nothing is lost.
func TestALoadThatFails(t *testing.T) {
	l, _ := newLoading(t)
	k := l.want("k")
	r := l.cut()
	r.Err = errLostReply
	if outcome := l.settle(r); outcome != loadFailed || k.Done || len(l.Waiting) != 1 ||
		!l.Probe || !l.Retry.Waiting(time.Now()) {
		t.Errorf("outcome %v, %+v, %d wait", outcome, k, len(l.Waiting))
	}
}

// TestALateLoadIsNoFailure: a load that was not answered in time is tried again, and clears the
// failures before it.
func TestALateLoadIsNoFailure(t *testing.T) {
	l, _ := newLoading(t)
	k := l.want("k")
	r := l.cut()
	r.Err = errLostReply
	l.settle(r)
	for range 3 {
		l.Retry.Until = time.Time{}
		r = l.cut()
		r.Err = fmt.Errorf("%w: %w", ErrLate, errLostReply)
		if outcome := l.settle(r); outcome != loadFailed || k.Done || len(l.Waiting) != 1 ||
			l.Retry.Failing() || !l.Retry.Waiting(time.Now()) {
			t.Errorf("outcome %v, %+v, %d wait, %+v", outcome, k, len(l.Waiting), l.Retry)
		}
	}
}

// TestALoadFindsALoss: the store reports less than it reported before.
func TestALoadFindsALoss(t *testing.T) {
	l, _ := newLoading(t)
	l.want("k")
	r := l.cut()
	r.Lost = true
	outcome := l.settle(r)
	if outcome != loadFlushes || l.store.Report != rounds.Suspected || l.Exclusive {
		t.Errorf("outcome %v, report %v, exclusive %v", outcome, l.store.Report, l.Exclusive)
	}
}

// TestALoadWithoutMemory loads a key that memory has no room for.
func TestALoadWithoutMemory(t *testing.T) {
	l, budget := newLoading(t)
	budget.full = true
	k := l.want("k")
	r := l.cut()
	(&fakeStore{epoch: 7, version: 1,
		counts: map[string]map[leaparray.Stretch]int64{"k": {second(4).Stretch: 4}}}).answer(r)
	if l.settle(r); !k.Done || !errors.Is(k.Err, twotier.ErrOverload) || l.keys.Len() != 0 {
		t.Errorf("%+v, %d keys in memory", k, l.keys.Len())
	}
}
