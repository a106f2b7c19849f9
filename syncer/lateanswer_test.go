package syncer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/syncer"
)

// TestWhatWasLoadedBeforeAHandoffIsReadAgain hands a partition to a counter that has counted one of
// its keys in place of the owner. The answer to its flush, which brings back the key, predates the
// owner's last flush, and arrives after the handoff.
func TestWhatWasLoadedBeforeAHandoffIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := &between{key: "k"}
		var wrapped int
		co := newCompany(t, 2, func(inner syncer.Store) syncer.Store {
			if wrapped++; wrapped == 1 {
				return inner
			}
			hook.Store = inner
			return hook
		})
		co.add(0, "k", 1)
		co.settle()
		handed := make(chan struct{})
		hook.then = func() {
			co.add(0, "k", 5)
			co.flush(0)
			hand(t, co.counters[0], co.counters[1], 0, 1<<20)
			close(handed)
		}
		co.add(1, "k", 1)
		<-handed
		synctest.Wait()
		if got := co.counts(1, "k"); got != 7 {
			t.Errorf("the new owner counts %d, want 7", got)
		}
		co.settle()
		co.holds("k", 7)
	})
}

// TestWhatIsOutOfDateIsHandedOverToOneWhoKnowsLess hands over a key that has to be read again, to a
// counter that read it earlier and has to read it again, too. The store loses the key before that
// happens: the new owner restores all counts that either counter knew.
func TestWhatIsOutOfDateIsHandedOverToOneWhoKnowsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 2, nil)
		co.add(0, "k", 5)
		co.settle()
		if got := co.counts(1, "k"); got != 5 {
			t.Fatalf("it reads %d", got)
		}
		co.add(0, "k", 3)
		co.settle()
		co.add(1, "another", 1) // news: what counter 0 knows may be out of date
		co.flush(1)
		time.Sleep(2 * verifyEvery)
		if co.counters[0].Held(nil, []byte("k")).Warm {
			t.Fatal("there is no news")
		}
		hand(t, co.counters[0], co.counters[1], 0, 1<<20)
		co.store.Flush()
		co.settle()
		co.holds("k", 8)
		co.holds("another", 1)
	})
}
