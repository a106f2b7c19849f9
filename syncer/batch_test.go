package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/syncer"
)

// TestBatchIsWhatOneByOneIs runs batches on one counter and the same operations one by one on
// another.
func TestBatchIsWhatOneByOneIs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, parts := range []int{1, 3, 1021} {
		clk := &clock{now: t0}
		// No answer may depend on the duration of anything.
		opt := syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: parts},
			LoadTimeout: time.Hour, RoundTimeout: time.Hour,
			Namespaces: map[string]syncer.Namespace{"other": {}}}
		together, apart := open(t, opt), open(t, opt)
		for range 30 {
			clk.set(clk.Now() + int64(r.IntN(3000)))
			ops := make([]twotier.Op, 1+r.IntN(40))
			for i := range ops {
				ops[i] = randomOp(r, clk.Now())
			}
			res := make([]twotier.Result, len(ops))
			together.DoAll(t.Context(), ops, res)
			for i := range ops {
				var want twotier.Result
				want.Err = apart.Do(t.Context(), &ops[i], &want)
				compareResults(t, fmt.Sprintf("%d partitions, operation %d of %d: %+v", parts, i,
					len(ops), ops[i]), &res[i], &want)
			}
		}
		for i := range 30 {
			key := fmt.Sprint("k", i)
			if got, want := count(t, together, key, 86_400_000),
				count(t, apart, key, 86_400_000); got != want {
				t.Errorf("%d partitions: %s counts %d, one by one %d", parts, key, got, want)
			}
		}
	}
}

// randomOp returns an add, sometimes an invalid one, or an acquire.
func randomOp(r *rand.Rand, now int64) twotier.Op {
	check := twotier.Check{Key: fmt.Append(nil, "k", r.IntN(30)), N: 1 + int64(r.IntN(3))}
	op := twotier.Op{}
	switch r.IntN(12) {
	case 0:
		check.N = -2
	case 1:
		op.TS = now - int64(r.IntN(200_000_000)) // some are too late
	case 2:
		op.TS = now + 3_600_000
	case 3:
		check.NS = []byte("other")
	case 4:
		op.Ack = twotier.AckStore
	case 5:
		op.Kind, check.Limits = twotier.Acquire, limits(60_000, 20)
	case 6:
		check.Limits = limits(60_000, 20)
	}
	op.Checks = []twotier.Check{check}
	return op
}

func compareResults(t *testing.T, what string, got, want *twotier.Result) {
	t.Helper()
	if fmt.Sprint(got.Err) != fmt.Sprint(want.Err) {
		t.Fatalf("%s: %v, one by one %v", what, got.Err, want.Err)
	}
	g, w := *got, *want
	g.Err, w.Err, g.AgeMS, w.AgeMS = nil, nil, 0, 0
	if got.Err == nil && !reflect.DeepEqual(g, w) {
		t.Fatalf("%s: %+v, one by one %+v", what, g, w)
	}
}

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
			wantCount(t, c, key, 60_000, 0)
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
