package hotkeys_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

var limits = []twotier.Limit{{Window: 60_000, Max: 100_000}}

// side is a node: a counter with a tracker.
type side struct {
	*hotkeys.Tracker
	counter *syncer.Counter
	table   *ring.Table
	other   *side
	paused  atomic.Bool
	cut     atomic.Bool // no other node can be reached
	asked   atomic.Int64
}

// Ask sends a request to the other side.
func (s *side) Ask(ctx context.Context, _ *ring.Member, request, response any) error {
	s.asked.Add(1)
	if s.cut.Load() {
		return rpc.ErrUnreachable
	}
	switch q := request.(type) {
	case *hotkeys.RecallRequest:
		time.Sleep(time.Millisecond)
		return s.other.ServeRecall(ctx, q)
	case *hotkeys.LeaseRequest:
		*response.(*hotkeys.LeaseResponse) = *s.other.Lend(ctx, q)
	}
	return nil
}

var placement = twotier.Placement{Partitions: 2}

// newCounter returns a node's table and counter. The nodes are owner and other.
func newCounter(t *testing.T, store syncer.Store, name string) (*ring.Table, *syncer.Counter) {
	t.Helper()
	table, err := ring.NewTable([]ring.Member{{ID: "owner", Name: "owner"},
		{ID: "other", Name: "other"}}, name, placement.Partitions, 0)
	must.Succeed(t, err)
	counter, err := syncer.New(syncer.Options{Store: store, Placement: placement, NotOwner: true,
		Now: func() int64 { return time.Now().UnixMilli() }, Writer: name})
	must.Succeed(t, err)
	must.Succeed(t, counter.Open(t.Context()))
	return table, counter
}

// newPair returns two nodes that share a store, with running trackers. Keys are hot from 1000
// operations a second on. The nodes stop before the test ends.
func newPair(t *testing.T) (owner, other *side, key string) {
	t.Helper()
	sides, store := []*side{{}, {}}, embedded.New(embedded.Options{})
	for i, s := range sides {
		table, counter := newCounter(t, store, []string{"owner", "other"}[i])
		for p := range 2 {
			if table.OwnedBySelf(p) {
				counter.StartOwning(p)
			}
		}
		s.counter, s.table, s.other = counter, table, sides[1-i]
		s.Tracker = hotkeys.New(hotkeys.Options{
			Rate: 1000, Placement: placement, Table: func() *ring.Table { return s.table },
			Counter: counter, Paused: s.paused.Load, Peers: s, Changed: func() {},
			Go: func(fn func(ctx context.Context)) { go fn(context.Background()) },
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, s := range sides {
		running.Go(func() { s.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, s := range sides {
			_ = s.counter.Close(context.Background())
		}
	})
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); sides[0].table.OwnedBySelf(placement.Of(nil, []byte(k))) {
			key = k
		}
	}
	return sides[0], sides[1], key
}

// recall has the other side store its counts of a key, and then reads the key.
func (s *side) recall(t *testing.T, key []byte) {
	t.Helper()
	must.Succeed(t, s.other.ServeRecall(t.Context(), &hotkeys.RecallRequest{Key: key}))
	must.Succeed(t, s.counter.CatchUp(t.Context(), &twotier.Check{Key: key}))
}

// acquire acquires a key the given number of times within a second, and returns how many of them
// the node decided on its own.
func (s *side) acquire(t *testing.T, key string, times int, limits []twotier.Limit) (decided int) {
	t.Helper()
	op := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limits}}}
	var res twotier.Result
	for range 10 {
		for range times / 10 {
			if s.counter.Do(t.Context(), &op, &res) == nil {
				decided++
			} else {
				s.Sample([]twotier.Op{op})
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return decided
}

// TestHotKeyIsBorrowedWhileItIsHot makes a key hot, lets the other node decide nearly all of its
// operations with few messages, and lets it cool down. No loan remains.
func TestHotKeyIsBorrowedWhileItIsHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, other, key := newPair(t)
		//lint:ignore SA6001 it is used four times
		name := string((&twotier.Check{Key: []byte(key)}).AppendName(nil))
		for range 3 {
			if n := other.acquire(t, key, 500, limits); n > 0 || other.Shared()[name] {
				t.Fatalf("%d decided below the rate", n)
			}
		}
		other.acquire(t, key, 2000, limits)
		other.acquire(t, key, 2000, limits)
		if lent, _ := owner.Sizes(); lent != 1 || !other.Shared()[name] || !owner.Shared()[name] {
			t.Fatalf("%d keys are lent", lent)
		}
		other.asked.Store(0)
		decided := 0
		for range 10 {
			decided += other.acquire(t, key, 2000, limits)
		}
		if asked := other.asked.Load(); decided < 19_000 || asked > 150 {
			t.Errorf("%d of 20000 decided without the owner, with %d messages", decided, asked)
		}
		time.Sleep(20 * time.Second)
		lent, _ := owner.Sizes()
		if _, borrowed := other.Sizes(); lent+borrowed > 0 || other.Shared()[name] {
			t.Errorf("%d lent, %d borrowed after 20 s without an operation", lent, borrowed)
		}
		var res twotier.Result
		if err := owner.counter.Do(t.Context(), &twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{{Key: []byte(key), N: 1, Limits: limits}}}, &res); err != nil ||
			res.Checks[0].Limits[0].Hi != res.Checks[0].Limits[0].Count {
			t.Errorf("%+v, %v: something is still lent", res.Checks, err)
		}
	})
}

// TestWhatEndsBorrowing covers an unreachable owner, other limits, and a change of mode.
func TestWhatEndsBorrowing(t *testing.T) {
	fewer := []twotier.Limit{{Window: 60_000, Max: 90_000}}
	for name, test := range map[string]struct {
		change func(owner, other *side)
		limits []twotier.Limit
		again  bool // later operations borrow again
	}{
		"the owner can't be reached": {
			func(_, other *side) { other.cut.Store(true) }, limits, false},
		"a change of mode": {
			func(_, other *side) { other.counter.SetBorrowingPaused(true) }, limits, false},
		"other limits": {func(_, _ *side) {}, fewer, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				owner, other, key := newPair(t)
				for range 3 {
					other.acquire(t, key, 2000, limits)
				}
				test.change(owner, other)
				other.acquire(t, key, 2000, test.limits) // the loan runs out
				n := other.acquire(t, key, 2000, test.limits)
				for range 5 {
					n = other.acquire(t, key, 2000, test.limits)
				}
				if (n > 1000) != test.again {
					t.Errorf("%d of 2000 decided without the owner", n)
				}
			})
		})
	}
}

// TestNothingIsBorrowedWhilePaused covers a cluster that counts in Redis.
func TestNothingIsBorrowedWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, other, key := newPair(t)
		other.paused.Store(true)
		for range 4 {
			if n := other.acquire(t, key, 2000, limits); n > 0 {
				t.Fatalf("%d decided", n)
			}
		}
	})
}
