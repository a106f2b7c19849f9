package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/syncer"
)

// tardy takes its time to load a partition.
type tardy struct {
	*embedded.Store
	partition int
	until     chan struct{}
}

func (s tardy) Exchange(ctx context.Context, rounds []*syncer.Round) {
	if slices.ContainsFunc(rounds, func(r *syncer.Round) bool {
		return r.Partition == s.partition && r.Aside
	}) {
		<-s.until
	}
	s.Store.Exchange(ctx, rounds)
}

// TestAbsenceIsNotBelievedAfterAnEviction has a batch ask for a key twice, of which the store has
// nothing when it begins. Between the two the key is counted, flushed and pushed out of memory,
// with few others or many: what was said when the batch began is true no more.
func TestAbsenceIsNotBelievedAfterAnEviction(t *testing.T) {
	for name, oldest := range map[string]bool{"the oldest": true, "one of many": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAbsence(t, oldest) })
		})
	}
}

func testAbsence(t *testing.T, oldest bool) {
	place, clk := syncer.Placement{Partitions: 2}, &clock{now: t0}
	key, slow := keyIn(place, 0, "key-"), keyIn(place, 1, "slow-")
	store := tardy{embedded.New(embedded.Options{}), 1, make(chan struct{})}
	c := open(t, syncer.Options{Store: store, Now: clk.Now, Placement: place, Exchanges: 2,
		MaxMemory: 64 << 10, RoundTimeout: time.Minute})
	use := func(key string) {
		add(t, c, key, 1, 0)
		flush(t, c)
	}
	var crowd []string
	for i := 0; c.Stats().EvictedTotal == 0; i++ {
		crowd = append(crowd, keyIn(place, 0, fmt.Sprint("crowd-", i, "-")))
		use(crowd[i])
		clk.set(clk.Now() + 3000)
	}
	ops, res := []syncer.Op{*acquireOp(key, 1, 1), *acquireOp(slow, 1, 1), *acquireOp(key, 1, 1)},
		make([]syncer.Result, 3)
	done := make(chan struct{})
	go func() { c.DoAll(context.Background(), ops, res); close(done) }()
	synctest.Wait() // the batch waits for the slow key
	flush(t, c)
	before := c.Stats().EvictedTotal
	clk.set(clk.Now() + 10_000)
	for _, other := range crowd {
		if oldest && c.Held(nil, []byte(other)).Found {
			use(other)
		}
	}
	for i := 0; i < 1000 && (c.Held(nil, []byte(key)).Found || !oldest); i++ {
		clk.set(clk.Now() + 3000)
		use(keyIn(place, 0, fmt.Sprint("new-", i, "-")))
	}
	// At most 64 keys are remembered by name.
	if n := c.Stats().EvictedTotal - before; n == 0 || oldest != (n <= 64) {
		t.Errorf("%d keys were evicted", n)
	}
	close(store.until)
	if <-done; !res[0].Allowed || res[2].Allowed {
		t.Errorf("one event is to be admitted, and one alone: %+v", res)
	}
}
