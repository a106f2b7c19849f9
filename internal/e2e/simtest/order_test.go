package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/roster"
	"twotier.dev/twotier/internal/testing/simnet"
	"twotier.dev/twotier/leaparray"
)

// calm returns a world of three nodes without faults.
func calm(t *testing.T) *world { return calmWith(t, func(*plan) {}) }

// inCalm runs a story in a calm world, in a bubble.
func inCalm(t *testing.T, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := calm(t)
		defer w.shutDown()
		story(t, w)
	})
}

// calmWith is a calm world with another plan.
func calmWith(t *testing.T, change func(p *plan)) *world {
	w := &world{
		t: t, seed: 1, ladders: []*leaparray.Ladder{usual()}, rnd: rand.New(rand.NewPCG(1, 1)),
		redis: embedded.New(embedded.Options{}),
		plan: plan{
			kind: graceful, nodes: 3, partitions: 31, lanes: 2, interval: 100 * time.Millisecond,
			weather: simnet.Weather{Delay: time.Millisecond},
		},
		ledger: ledger{keys: map[string]*account{}}, procs: map[int]*proc{}, inUse: map[*proc]int{},
		listed: map[string]roster.Entry{},
	}
	change(&w.plan)
	w.net = simnet.New(w.seed, w.plan.weather)
	for i := 1; i <= w.plan.nodes; i++ {
		if _, err := w.start(i); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestBatchKeepsTheOrderOfAKey sends operations with one owner and with several in one batch, on
// shared keys. The first operation on a key is admitted, whatever else runs at the same time.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		take := func(round int, keys ...string) (op twotier.Op) {
			op.Kind = twotier.Acquire
			for _, key := range keys {
				op.Checks = append(op.Checks,
					twotier.Check{Key: fmt.Appendf(nil, "%s %d", key, round), N: 1,
						Limits: []twotier.Limit{{Window: dayMS, Max: 2}}})
			}
			return op
		}
		for round := range 50 {
			ops := []twotier.Op{take(round, "a", "b"), take(round, "a"), take(round, "a"),
				take(round, "b", "c"), take(round, "b", "d"), take(round, "c"),
				take(round, "c", "e")}
			want := []bool{true, true, false, true, false, true, false}
			res := make([]twotier.Result, len(ops))
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			w.alive()[round%3].node.DoAll(ctx, ops, res)
			cancel()
			for i := range ops {
				if res[i].Err != nil || res[i].Allowed != want[i] {
					t.Errorf("round %d, operation %d: allowed %v, %v", round, i, res[i].Allowed,
						res[i].Err)
				}
			}
		}
	})
}
