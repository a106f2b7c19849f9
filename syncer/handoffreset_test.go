package syncer_test

import (
	"context"
	"errors"
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
