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

// TestRoomThatIsNotUsedGoesToTheNext has operations wait for room that use none once they have it, and others behind them.
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
