package node_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

// still is a store whose clock is the node's.
type still struct{}

func (still) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }
func (still) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Up: true}
}

// resetting fakes a Redis that only resets keys, in a counter's store.
type resetting struct {
	node.Direct
	store *embedded.Store
	seq   uint64
}

func (d *resetting) Forget(ctx context.Context, ns, key []byte) error {
	d.seq++
	d.store.Exchange(ctx, []*syncer.Round{{Writer: "direct", Seq: d.seq,
		Keys: []syncer.KeyRound{{NS: ns, Key: key, Reset: true}}}})
	return nil
}

func (d *resetting) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].AddCheck()
	}
}

// alone returns a node without a cluster.
func alone(t testing.TB, opt node.Options) *node.Node {
	t.Helper()
	opt.ID, opt.Store, opt.Placement = "n", still{}, twotier.Placement{Partitions: 1}
	if opt.Clock == nil {
		opt.Clock = storeclock.New(nil, nil)
	}
	if opt.Direct == nil {
		opt.Direct = &resetting{store: embedded.New(embedded.Options{})}
	}
	var err error
	opt.Counter, err = syncer.New(syncer.Options{
		Store: opt.Direct.(*resetting).store, Now: opt.Clock.Now, Placement: opt.Placement,
	})
	must.Succeed(t, err)
	n, err := node.New(opt)
	if err == nil {
		err = n.Open(t.Context(), "")
	}
	must.Succeed(t, err)
	return n
}

// TestClockAfterASuspension suspends the machine: the node's time includes the suspension before
// the store is asked, and does not take it for a step of the store's clock.
func TestClockAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		clock := storeclock.New(nil, nil)
		n := alone(t, node.Options{Clock: clock, ClockInterval: time.Hour,
			Asleep: func() time.Duration { return time.Duration(slept.Load()) }})
		before := clock.Now()
		slept.Store(int64(40 * time.Minute))
		time.Sleep(2 * time.Second)
		if got, want := clock.Now()-before,
			(40*time.Minute + 2*time.Second).Milliseconds(); got != want {
			t.Errorf("%d ms have passed, want %d", got, want)
		}
		if ahead, _ := clock.Offset(); ahead != 0 {
			t.Errorf("the store is taken to be ahead by %v", ahead)
		}
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestResetInRedisModeOutlivesALoss counts a key in memory, resets it in Redis mode, and makes the
// store lose everything: the node does not restore the key.
func TestResetInRedisModeOutlivesALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &resetting{store: embedded.New(embedded.Options{})}
		n := alone(t, node.Options{Direct: d})
		for _, key := range []string{"reset", "kept"} {
			op := twotier.Op{Ack: twotier.AckStore, Checks: []twotier.Check{{Key: []byte(key),
				N: 5}}}
			must.Succeed(t, n.Do(t.Context(), &op, new(twotier.Result)))
		}
		must.Succeed(t, n.SetMode(t.Context(), cluster.Redis))
		must.Succeed(t, n.Reset(t.Context(), nil, []byte("reset")))
		d.store.Flush()
		time.Sleep(time.Minute)
		if got := d.store.Get(0, nil, []byte("kept")); len(got) == 0 {
			t.Error("nothing was restored")
		}
		if got := d.store.Get(0, nil, []byte("reset")); len(got) > 0 {
			t.Errorf("a key that was reset is there again: %v", got)
		}
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
