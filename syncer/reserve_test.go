package syncer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// exhaust counts in ever more buckets, at decreasing times from now on, until there is no memory
// for another. The store must be down.
func exhaust(t *testing.T, c *syncer.Counter, now int64) {
	t.Helper()
	countNew := func(key, ts int64) error {
		op := twotier.Op{TS: ts, Checks: []twotier.Check{{Key: fmt.Append(nil, "new-", key), N: 1}}}
		return c.Do(t.Context(), &op, new(twotier.Result))
	}
	keys := int64(0)
	for countNew(keys, now) == nil {
		keys++
	}
	for i := range int64(2_000_000) {
		err := countNew(i%keys, now-i/keys*1000)
		if errors.Is(err, twotier.ErrOverload) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("there is still memory")
}

// TestConfirmNeedsNoMemory: memory is used up between a reservation and its confirmation. The
// reservation is counted nevertheless, because other nodes may have counted their part by then.
func TestConfirmNeedsNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := faulty(t, faultstore.Mix{})
		store.SetDown(true)
		c := open(t, syncer.Options{Store: store, Now: (&clock{now: t0}).Now,
			Placement: twotier.Placement{Partitions: 1}, MaxMemory: 256 << 10})
		add(t, c, "known", 1, 0)
		op := *acquireOp("known", 5, 10)
		op.TS, op.Reserve = t0, "id"
		op.Checks = append(op.Checks, acquireOp("unknown", 7, 10).Checks...)
		if res := do(t, c, op); !res.Allowed {
			t.Fatalf("%+v", res)
		}
		exhaust(t, c, t0)
		if err := c.Confirm(t.Context(), &op); err != nil {
			t.Errorf("Confirm: %v", err)
		}
		for key, want := range map[string]int64{"known": 6, "unknown": 7} {
			if got := count(t, c, key, 3_600_000); got != want {
				t.Errorf("%s: counted %d, want %d", key, got, want)
			}
		}
		if err := c.Confirm(t.Context(), &op); !errors.Is(err,
			twotier.ErrUnavailable) {
			t.Errorf("confirmed twice: %v", err)
		}
		store.SetDown(false)
	})
}

// TestConfirmAfterCloseLeavesTheReservation: a confirmation that counts nothing must not be taken
// for a repeated one.
func TestConfirmAfterCloseLeavesTheReservation(t *testing.T) {
	c := open(t, syncer.Options{})
	op := *acquireOp("k", 5, 10)
	op.Reserve = "id"
	if res := do(t, c, op); !res.Allowed {
		t.Fatalf("%+v", res)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Confirm(t.Context(), &op); !errors.Is(err,
			twotier.ErrClosed) {
			t.Errorf("Confirm: %v", err)
		}
	}
	if !c.Undo(&op) {
		t.Error("the reservation is gone")
	}
}
