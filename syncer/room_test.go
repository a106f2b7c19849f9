package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/embedded"
	"twotier/syncer"
)

// TestRoomThatIsNotUsedGoesToTheNext has operations wait for room that use none once they have it,
// and others behind them.
func TestRoomThatIsNotUsedGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, syncer.Options{Store: newPaced(100 * time.Millisecond), VerifyInterval: time.Hour, Lanes: 1,
			MaxLag: time.Millisecond, FlushInterval: 50 * time.Millisecond, // room for one key
			Placement: syncer.Placement{Partitions: 4}, Namespaces: map[string]syncer.Namespace{"full": {MaxKeys: 1}}})
		one := func(ns, key string) error {
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
			defer cancel()
			op := addOp(key, 1, syncer.AckMemory)
			op.Checks[0].NS = []byte(ns)
			return c.Do(ctx, op, new(syncer.Result))
		}
		if err := one("full", "first"); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for i := range 5 {
			waiting.Go(func() {
				if err := one("full", fmt.Sprint("another-", i)); !errors.Is(err, syncer.ErrMaxKeys) {
					t.Errorf("one too many in its namespace: %v", err)
				}
			})
			synctest.Wait()
		}
		waiting.Go(func() {
			began := time.Now()
			if err := one("", "last"); err != nil || time.Since(began) > time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
		waiting.Wait()
	})
}

// TestLeastRoom has many callers count new keys while there is room for few at a time.
func TestLeastRoom(t *testing.T) {
	c := open(t, syncer.Options{Store: embedded.New(embedded.Options{}), MaxLag: time.Microsecond, FlushInterval: time.Hour, VerifyInterval: time.Hour, Lanes: 1,
		Placement: syncer.Placement{Partitions: 4}})
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for i := range 2000 {
				ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
				err := c.Do(ctx, addOp(fmt.Sprint(n, "-", i), 1, syncer.AckMemory), new(syncer.Result))
				cancel()
				if err != nil {
					t.Errorf("caller %d, key %d: %v", n, i, err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// slowLane takes a moment for even partitions, and many for odd ones.
type slowLane struct{ *embedded.Store }

func (s slowLane) Exchange(ctx context.Context, rounds []*syncer.Round) {
	time.Sleep(100 * time.Millisecond)
	if rounds[0].Partition%2 == 1 {
		time.Sleep(5 * time.Second)
	}
	s.Store.Exchange(ctx, rounds)
}

// TestBatchWaitsWhereThereIsNoRoom has a batch count in two lanes that are full, of which one has room again soon.
func TestBatchWaitsWhereThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		place := syncer.Placement{Partitions: 4}
		c := open(t, syncer.Options{Store: slowLane{embedded.New(embedded.Options{})}, Lanes: 2, Placement: place,
			MaxLag: time.Millisecond, RoundTimeout: time.Minute})
		add(t, c, keyIn(place, 0, "first"), 1, 0)
		add(t, c, keyIn(place, 1, "first"), 1, 0)
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		ops := []syncer.Op{*addOp(keyIn(place, 2, "a"), 1, syncer.AckMemory), *addOp(keyIn(place, 3, "a"), 1, syncer.AckMemory)}
		res := make([]syncer.Result, len(ops))
		c.DoAll(ctx, ops, res)
		if res[0].Err != nil || !errors.Is(res[1].Err, syncer.ErrBehind) {
			t.Errorf("%v where there was room, %v where there was none", res[0].Err, res[1].Err)
		}
		time.Sleep(time.Minute) // until all is in the store
	})
}
