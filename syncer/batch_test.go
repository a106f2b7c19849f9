package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"twotier.dev/twotier"
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
