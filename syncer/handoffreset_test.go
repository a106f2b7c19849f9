package syncer_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// resetBed is three counters of a partition over one store. Each of them can lose its connection.
type resetBed struct {
	t        *testing.T
	clk      *clock
	inner    *embedded.Store
	stores   [3]*faultstore.Store
	counters [3]*syncer.Counter
}

func newResetBed(t *testing.T) *resetBed {
	b := &resetBed{t: t, clk: &clock{now: t0}, inner: embedded.New(embedded.Options{})}
	for i := range b.counters {
		b.stores[i] = faultstore.New(faultstore.Options{Store: b.inner, Report: t.Errorf,
			Adopts: true})
		b.counters[i] = open(t, syncer.Options{Store: b.stores[i], Now: b.clk.Now, NotOwner: i > 0,
			MaxRoundKeys: 2, Placement: twotier.Placement{Partitions: 1},
			FlushInterval: 50 * time.Millisecond, VerifyInterval: time.Hour})
	}
	return b
}

// stored returns the store's sum of a key.
func (b *resetBed) stored(key string) int64 {
	return sumOf(key, b.inner.Get(0, spaceOf(key), []byte(key)))
}

func (b *resetBed) setDown(down bool) {
	for _, s := range b.stores {
		s.SetDown(down)
	}
}

// reset resets a key at a counter that can't reach the store.
func (b *resetBed) reset(i int, key string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := b.counters[i].ResetKey(ctx, spaceOf(key), []byte(key)); !errors.Is(err,
		twotier.ErrUnknownOutcome) {
		b.t.Errorf("reset without a store: %v", err)
	}
}

// end waits until everything is flushed, and checks that the counter, the store, and a new counter
// that reads the store have this count.
func (b *resetBed) end(i int, key string, want int64) {
	b.t.Helper()
	b.setDown(false)
	flush(b.t, b.counters[i])
	if told, stored := count(b.t, b.counters[i], key, 60_000), b.stored(key); told != stored ||
		told != want {
		b.t.Errorf("%s: the counter says %d, the store has %d, want %d", key, told, stored, want)
	}
	reader := open(b.t, syncer.Options{Store: b.inner, Now: b.clk.Now,
		Placement: twotier.Placement{Partitions: 1}})
	if read := count(b.t, reader, key, 60_000); read != want {
		b.t.Errorf("%s: a counter that reads the store says %d, want %d", key, read, want)
	}
}

// TestResetBeforeATakeover resets a key at a counter that is about to take the partition over from
// another one, which has counted it meanwhile. Neither has reached the store. The counts stay,
// because the reset was not reported as done.
func TestResetBeforeATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResetBed(t)
		add(t, b.counters[0], "k", 5, 0)
		flush(t, b.counters[0])
		b.counters[1].StartOwning(0)
		add(t, b.counters[1], "other", 1, 0)
		if got := count(t, b.counters[1], "k", 60_000); got != 5 {
			t.Fatalf("%d, want 5", got)
		}
		flush(t, b.counters[1])
		b.setDown(true)
		add(t, b.counters[1], "other", 1, 0)
		time.Sleep(time.Second) // a round without the reset gets no answer
		b.reset(1, "k")
		add(t, b.counters[0], "k", 2, 0)
		hand(t, b.counters[0], b.counters[1], 0, 1<<20)
		b.end(1, "k", 2)
	})
}

// TestResetThatIsHandedOver hands over a reset that has not reached the store, to a counter that
// took counts of the key over from another one before, and reads the key along with them.
func TestResetThatIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"k", "/k"} {
			b := newResetBed(t)
			add(t, b.counters[0], key, 5, 0)
			flush(t, b.counters[0])
			b.counters[2].StartOwning(0)
			add(t, b.counters[2], "other", 1, 0)
			flush(t, b.counters[2])
			b.setDown(true)
			b.counters[1].StartOwning(0)
			add(t, b.counters[1], key, 2, 0)
			time.Sleep(time.Second) // a round that counts and reads the key gets no answer
			b.reset(0, key)
			hand(t, b.counters[1], b.counters[2], 0, 1<<20)
			hand(t, b.counters[0], b.counters[2], 0, 1<<20)
			b.end(2, key, 0)
		}
	})
}

// TestManyResetsBeforeATakeover resets more keys than fit into a round before such a takeover.
func TestManyResetsBeforeATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResetBed(t)
		keys := []string{"k", "l", "m", "n", "o"}
		b.counters[1].StartOwning(0)
		for _, key := range keys {
			add(t, b.counters[0], key, 5, 0)
		}
		flush(t, b.counters[0])
		for _, key := range keys {
			if got := count(t, b.counters[1], key, 60_000); got != 5 {
				t.Fatalf("%s: %d, want 5", key, got)
			}
		}
		b.setDown(true)
		for _, key := range keys {
			b.reset(1, key)
			add(t, b.counters[0], key, 2, 0)
		}
		hand(t, b.counters[0], b.counters[1], 0, 1<<20)
		for _, key := range keys {
			b.end(1, key, 2)
		}
	})
}

// TestAResetThatAnotherCounterHasCarriedOut sends a reset that was handed over, after a round that
// counts and reads the key. A second counter has taken over and sent both before, and a third one
// has counted the key since.
func TestAResetThatAnotherCounterHasCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResetBed(t)
		add(t, b.counters[0], "k", 5, 0)
		flush(t, b.counters[0])
		b.counters[1].StartOwning(0)
		add(t, b.counters[1], "other", 1, 0)
		flush(t, b.counters[1])
		b.setDown(true)
		add(t, b.counters[1], "k", 3, 0)
		time.Sleep(time.Second) // a round that counts and reads the key gets no answer
		b.reset(0, "k")
		hand(t, b.counters[0], b.counters[1], 0, 1<<20)
		b.stores[2].SetDown(false)
		if err := b.counters[1].BeginHandoff(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		b.counters[2].ImportHandoff(pages(t, b.counters[1], 0, 1<<20))
		flush(t, b.counters[2])
		if got := b.stored("k"); got != 0 {
			t.Errorf("the key is reset, and the store has %d", got)
		}
		b.counters[1].StartOwning(0) // it does not notice the takeover
		b.stores[0].SetDown(false)
		do(t, b.counters[0], twotier.Op{Kind: twotier.Add, AllowNonOwner: true,
			Checks: []twotier.Check{{Key: []byte("k"), N: 4}}})
		flush(t, b.counters[0])
		b.setDown(false)
		flush(t, b.counters[1])
		b.end(1, "k", 4)
	})
}

// TestCountsThatOutliveAReset hands over counts of a key that the store had when they were made.
// Another counter, which the first can't reach, resets the key before they get there. They create
// the key again, and it nevertheless has a time to live.
func TestCountsThatOutliveAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newResetBed(t)
		add(t, b.counters[0], "k", 2, 0)
		flush(t, b.counters[0])
		b.stores[0].SetDown(true)
		add(t, b.counters[0], "k", 3, 0)
		time.Sleep(time.Second) // it can't be flushed
		b.counters[2].StartOwning(0)
		if err := b.counters[2].ResetKey(context.Background(), nil, []byte("k")); err != nil {
			t.Fatal(err)
		}
		if err := b.counters[0].BeginHandoff(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		h := pages(t, b.counters[0], 0, 1<<20)
		h.Keys = nil // a large partition hands over no idle keys
		b.counters[1].ImportHandoff(h)
		if err := b.counters[0].FinishHandoff(0); err != nil {
			t.Fatal(err)
		}
		flush(t, b.counters[1])
		time.Sleep(time.Minute)
		if got := b.stored("k"); got != 3 {
			t.Errorf("the store has %d, want 3", got)
		}
		if b.inner.Expires(0, nil, []byte("k")) == math.MaxInt64 {
			t.Error("the store keeps it for ever")
		}
	})
}
