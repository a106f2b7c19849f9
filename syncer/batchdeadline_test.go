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

// TestNothingOfABatchIsCountedAfterItsDeadline has the first operation of a batch wait for a slow
// store until the request's time is up. The others are not carried out, and return an error (I13).
func TestNothingOfABatchIsCountedAfterItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := embedded.New(embedded.Options{})
		before := open(t, syncer.Options{Store: inner})
		add(t, before, "cold", 10, 0)
		flush(t, before)
		c := open(t, syncer.Options{Store: faultstore.New(faultstore.Options{Store: inner,
			Report: t.Errorf, Delay: func() time.Duration { return 900 * time.Millisecond }})})
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		ops := []twotier.Op{*acquireOp("cold", 1, 10)}
		for range 3 * 8 { // more than are carried out at once
			ops = append(ops, *addOp("added", 1, twotier.AckMemory))
		}
		ops = append(ops, *acquireOp("acquired", 1, 10), *addOp("added", 1, twotier.AckStore))
		res := make([]twotier.Result, len(ops))
		c.DoAll(ctx, ops, res)
		for i := range res {
			if err := res[i].Err; !errors.Is(err, twotier.ErrUnavailable) ||
				errors.Is(err, twotier.ErrUnknownOutcome) {
				t.Errorf("operation %d: %v, %+v", i, err, res[i])
			}
		}
		time.Sleep(10 * time.Second)
		for _, key := range []string{"added", "acquired"} {
			if n := count(t, c, key, 60_000); n != 0 {
				t.Errorf("%s: %d are counted", key, n)
			}
		}
	})
}

// ended is a context that ends after this many calls of Err.
type ended struct {
	context.Context
	after int
}

func (e *ended) Err() error {
	if e.after--; e.after < 0 {
		return context.Canceled
	}
	return nil
}

// TestABatchStopsWithItsRequest ends a request in the middle of a batch that never waits. The
// operations that have not begun are not carried out.
func TestABatchStopsWithItsRequest(t *testing.T) {
	c := open(t, syncer.Options{Now: (&clock{now: t0}).Now})
	var ops []twotier.Op
	for range 100 {
		ops = append(ops, *acquireOp("acquired", 1, 1000))
	}
	for range 100 {
		ops = append(ops, *addOp("added", 1, twotier.AckMemory))
	}
	for _, after := range []int{0, 1, 50, 105} {
		res := make([]twotier.Result, len(ops))
		acquired, added := count(t, c, "acquired", 60_000), count(t, c, "added", 60_000)
		c.DoAll(&ended{context.Background(), after}, ops, res)
		done := int64(0)
		for i := range res {
			if res[i].Err == nil {
				done++
			} else if !errors.Is(res[i].Err, twotier.ErrUnavailable) {
				t.Error(res[i].Err)
			}
		}
		acquired = count(t, c, "acquired", 60_000) - acquired
		added = count(t, c, "added", 60_000) - added
		// A process that stood still asks about the request more often.
		most := int64(min(after, 100))
		if acquired > most || acquired < most-10 || acquired+added != done || added > 5*8 {
			t.Errorf("ended after %d: %d acquired, %d added, %d are said to be done", after,
				acquired, added, done)
		}
	}
}
