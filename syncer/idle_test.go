package syncer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestAnIdleCounterRests: while nothing is counted, the clock makes nothing due, except to verify
// that the store still has everything. Later counts are still flushed in time.
func TestAnIdleCounterRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 64},
			FlushInterval: 100 * time.Millisecond, VerifyInterval: 5 * time.Second})
		for range 3 {
			for i := range 100 {
				add(t, c, fmt.Sprint("k", i), 1, 0)
			}
			time.Sleep(120 * time.Millisecond)
			if n := c.Stats().PendingBuckets; n > 0 {
				t.Errorf("%d buckets are pending after a flush interval", n)
			}
			time.Sleep(time.Second)
			if n := c.ShiftsAwake(); n > 0 {
				t.Errorf("%d shifts are awake though nothing is counted", n)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestAnEmptyCounterKeepsItsSequence counts twice, with days in between in which no key is in
// memory. The store forgets the sequence of a writer that is silent for two days, so the counter
// must reach it meanwhile: otherwise the second count would find a loss.
func TestAnEmptyCounterKeepsItsSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Minute, Count: 60})
		if err != nil {
			t.Fatal(err)
		}
		store := &forgetful{Store: embedded.New(embedded.Options{}), heard: time.Now()}
		c := open(t, syncer.Options{Store: store, Placement: twotier.Placement{Partitions: 1},
			FlushInterval: time.Minute, VerifyInterval: time.Minute,
			Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: l}}})
		for range 2 {
			add(t, c, "k", 1, 0)
			flush(t, c)
			time.Sleep(72 * time.Hour)
			if n := c.Stats().Keys; n != 0 {
				t.Fatalf("%d keys are in memory", n)
			}
		}
		if store.forgot > 0 {
			t.Errorf("the store forgot the sequence %d times", store.forgot)
		}
		if store.rounds > 400 {
			t.Errorf("%d rounds in six days", store.rounds)
		}
	})
}

// forgetful is a store that forgets the sequence of a writer after two days.
type forgetful struct {
	syncer.Store
	heard          time.Time
	rounds, forgot int
}

func (s *forgetful) Exchange(ctx context.Context, rounds []*syncer.Round) {
	for _, r := range rounds {
		s.rounds++
		if r.Acked > 0 && time.Since(s.heard) > 48*time.Hour {
			s.forgot++
		}
		if r.Acked > 0 || r.Seq > 0 {
			s.heard = time.Now()
		}
	}
	s.Store.Exchange(ctx, rounds)
}
