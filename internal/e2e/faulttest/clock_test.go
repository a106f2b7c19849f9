package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/syncer"
)

// steppingStore is a store whose clock jumps.
type steppingStore struct {
	mu   sync.Mutex
	now  time.Time
	asks int
}

func (s *steppingStore) ClockAhead(
	_ context.Context, local func() time.Time,
) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks++
	return s.now.Sub(local()), nil
}

func (s *steppingStore) Health() cluster.StoreHealth { return cluster.StoreHealth{Up: true} }

func (s *steppingStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks
}

// TestFault18ClockSteps makes the store's clock jump by minutes in both directions and by days, and
// the machine's wall clock too. The node keeps counting by the time that it believed: until a jump
// of minutes is confirmed, and forever after a jump of days. Time is driven: nothing here depends
// on how fast the test runs.
func TestFault18ClockSteps(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var mono time.Duration
	wall := time.UnixMilli(1_763_000_000_000)
	store := &steppingStore{now: wall}
	counts := embedded.New(embedded.Options{})
	clock := storeclock.New(
		func() time.Time { mu.Lock(); defer mu.Unlock(); return wall },
		func() time.Duration { mu.Lock(); defer mu.Unlock(); return mono })
	place := twotier.Placement{Partitions: 1}
	counter, err := syncer.New(syncer.Options{Store: counts, Now: clock.Now, Placement: place,
		FlushInterval: 5 * time.Millisecond})
	must.Succeed(t, err)
	n, err := node.New(node.Options{ID: "n", Counter: counter, Store: store, Clock: clock,
		Placement: twotier.Placement{Partitions: 1}, ClockInterval: time.Millisecond})
	must.Succeed(t, err)
	must.Succeed(t, n.Open(t.Context(), ""))
	// All clocks move at once: a measurement in between would see a step. The locks are taken in
	// the order in which a measurement takes them.
	pass := func(d time.Duration) {
		store.mu.Lock()
		defer store.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		mono += d
		wall = wall.Add(d)
		store.now = store.now.Add(d)
	}
	measured := func() {
		before := store.asked()
		proctest.Until(t, "the node asks for the time",
			func() bool { return store.asked() > before+1 })
	}
	last, total := int64(0), int64(0)
	unfollowed := time.Duration(0) // of the steps of the store's clock
	add := func(what string) {
		t.Helper()
		key := fmt.Sprint("k", total)
		at := clock.Now()
		if at < last {
			t.Fatalf("%s: the clock went back from %d to %d", what, last, at)
		}
		last = at
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: 1,
			Limits: []twotier.Limit{{Window: 1000, Max: 9}}}}}
		var res twotier.Result
		if err := n.Do(t.Context(), &op, &res); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		total++
		must.Succeed(t, counter.Flush(t.Context()))
		_, skew := clock.Offset()
		if doubted := unfollowed != 0 || skew > time.Second; doubted && !res.Degraded {
			t.Errorf("%s: %v of the store's steps are not followed, the skew is %v, and the "+
				"answer is not degraded", what, unfollowed, skew)
		}
		store.mu.Lock()
		believed := store.now.Add(-unfollowed).UnixMilli()
		store.mu.Unlock()
		buckets := counts.Get(0, nil, []byte(key))
		if len(buckets) != 1 {
			t.Fatalf("%s: %d buckets", what, len(buckets))
		}
		if b := buckets[0]; b.Width != 1 || b.Start < believed ||
			b.Start > believed+skew.Milliseconds()+2 {
			t.Errorf("%s: counted in %+v, want a millisecond from %d on (skew %v)", what, b,
				believed, skew)
		}
	}
	step := func(by time.Duration) {
		store.mu.Lock()
		store.now = store.now.Add(by)
		store.mu.Unlock()
		unfollowed += by
		mu.Lock()
		wall = wall.Add(-by) // the machine's clock doesn't matter
		mu.Unlock()
		measured()
		for range 5 {
			pass(700 * time.Millisecond)
			add(fmt.Sprint("just after ", by))
		}
	}
	settle := func() {
		for range 3 {
			pass(31 * time.Second)
			measured()
		}
	}
	for _, by := range []time.Duration{0, 3 * time.Minute, -2 * time.Minute, 7 * time.Minute,
		-30 * time.Second, -5 * time.Minute} {
		step(by)
		settle()
		unfollowed = 0
		_, skewed := clock.Offset()
		for range 20 {
			pass(700 * time.Millisecond)
			add(fmt.Sprint("after ", by))
		}
		measured()
		if _, skew := clock.Offset(); skewed > 14*time.Second && skew > skewed-6*time.Second {
			t.Errorf("after %v: the skew was %v and is %v: it does not shrink", by, skewed, skew)
		}
	}
	pass(20 * time.Minute)
	measured()
	add("at last")
	if _, skew := clock.Offset(); skew != 0 {
		t.Errorf("the skew is %v at last", skew)
	}
	for _, by := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		step(by)
		settle()
		add(fmt.Sprint("long after ", by))
	}
	if doubt := n.Cluster().ClockDoubt; doubt != string(storeclock.DoubtFar) {
		t.Errorf("the doubt is %q after steps that are too far to follow", doubt)
	}
	step(24 * time.Hour) // back where it was
	if doubt := n.Cluster().ClockDoubt; unfollowed != 0 || doubt != "" {
		t.Errorf("the doubt is %q with the store's clock set right", doubt)
	}
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Patience)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}
