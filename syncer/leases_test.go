package syncer_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/syncer"
)

// TestManyLeasesOfAKey takes tens of thousands of leases of all lengths on one key. Their ends come
// from LeaseEnd, so the counter and the one that takes over from it keep each of them until its
// end.
func TestManyLeasesOfAKey(t *testing.T) {
	race.SkipLong(t)
	clk, store := &clock{now: t0}, embedded.New(embedded.Options{})
	c := open(t, syncer.Options{Now: clk.Now, Store: store})
	model := leaseModel{"k": {}}
	for i := range 30_000 {
		now := clk.Now() + rand.Int64N(100)
		clk.set(now)
		until := twotier.LeaseEnd(now, 1+rand.Int64N(1<<(10+rand.IntN(17))))
		if res := do(t, c, twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{leaseOf("k", 1, until, 1<<40)}}); !res.Allowed {
			t.Fatalf("%+v", res)
		}
		model["k"][until]++
		if i%10_000 == 9_999 {
			flush(t, c)
			c = open(t, syncer.Options{Now: clk.Now, Store: store})
		}
		if i%1000 == 0 || i == 29_999 {
			want, _ := model.open("k", now, 1<<40)
			if got := openOf(t, c, "k", now); got != want {
				t.Fatalf("after %d leases %d are open, want %d", i+1, got, want)
			}
		}
	}
}
