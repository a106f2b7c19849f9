package redisstore_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestTheFirstSeedStays has many nodes come at the same time, each with a seed of its own, and
// others later.
func TestTheFirstSeedStays(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	stores := make([]*redisstore.Store, 12)
	var wg sync.WaitGroup
	for i := range stores {
		stores[i] = open(t, redisstore.Options{
			URL: srv.URL(), Placement: syncer.Placement{Partitions: 17, Seed: 1<<63 + uint64(i)},
			AnySeed: true,
		})
		wg.Go(func() {
			if err := probe(t, stores[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := stores[0].Placement()
	for i, s := range stores {
		if got := s.Placement(); got.Seed != want.Seed || got.Seed < 1<<63 {
			t.Errorf("node %d: %+v, another has %+v", i, got, want)
		}
	}
	if text, err := srv.Do("HGET", redisstore.MetaKey, "hash-seed").Text(); err != nil ||
		text != strconv.FormatUint(want.Seed, 10) {
		t.Errorf("stored: %s, %v", text, err)
	}
	works(t, open(t, redisstore.Options{URL: srv.URL(), Placement: want}))
	other := syncer.Placement{Partitions: 17, Seed: want.Seed + 100}
	if err := probe(t,
		open(t, redisstore.Options{URL: srv.URL(), Placement: other})); !errors.Is(err,
		redisstore.ErrMismatch) {
		t.Errorf("a node with a seed of its own: %v", err)
	}
	few := syncer.Placement{Partitions: 16}
	if err := probe(t, open(t, redisstore.Options{URL: srv.URL(), Placement: few,
		AnySeed: true})); !errors.Is(err, redisstore.ErrMismatch) {
		t.Errorf("a node with fewer partitions: %v", err)
	}
}

// TestTheSeedOutlivesALossOfData has a node come after Redis lost everything and before anybody
// noticed: it draws another seed than those have whose keys are placed already.
func TestTheSeedOutlivesALossOfData(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	first := open(t, redisstore.Options{URL: srv.URL(), Placement: syncer.Placement{Seed: 5},
		AnySeed: true})
	works(t, first)
	if err := srv.Do("FLUSHALL").Err(); err != nil {
		t.Fatal(err)
	}
	late := open(t, redisstore.Options{URL: srv.URL(), Placement: syncer.Placement{Seed: 6},
		AnySeed: true})
	if err := probe(t, late); err != nil || late.Placement().Seed != 6 {
		t.Fatalf("%v, %+v", err, late.Placement())
	}
	r := oneRound(first, "a", 2)
	if send(t, first, r); r.Err != nil || !r.Lost {
		t.Fatalf("the round after the loss: %v, lost %v", r.Err, r.Lost)
	}
	r = oneRound(first, "b", 1)
	if send(t, first, r); r.Err != nil {
		t.Errorf("the next one: %v", r.Err)
	}
	next := open(t, redisstore.Options{URL: srv.URL(), Placement: syncer.Placement{Seed: 7},
		AnySeed: true})
	if err := probe(t, next); err != nil || next.Placement().Seed != 5 {
		t.Errorf("whoever comes now: %v, %+v", err, next.Placement())
	}
}
