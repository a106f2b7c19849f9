package simtest

import (
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/simnet"
)

// withOthers returns an acquire of one event of a key with a limit, together with keys whose limits
// are never reached.
func withOthers(limit int64, key string, others ...string) *twotier.Op {
	op := acquiring(1, append(others, key)...)
	for i := range op.Checks {
		op.Checks[i].Limits[0].Max = 1000
	}
	op.Checks[len(others)].Limits[0].Max = limit
	return op
}

// TestALimitHoldsWhoseOwnerLives kills another owner of the acquires. The asked nodes count in its
// place, but the live owner still decides about its key, alone.
func TestALimitHoldsWhoseOwnerLives(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b, c := w.alive()[0], w.alive()[1], w.alive()[2]
		key, ofA, ofB := w.keysOf(c, "c", 1)[0], w.keysOf(a, "a", 1)[0], w.keysOf(b, "b", 1)[0]
		const limit = 10
		for _, op := range []*twotier.Op{withOthers(limit, key, ofB), withOthers(limit, key, ofA)} {
			if res, err := a.do(op, time.Second); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
		}
		time.Sleep(10 * time.Second)
		b.kill()
		allowed := 2
		for i := range 4 * limit {
			op := withOthers(limit, key, ofB)
			if i%4 > 1 {
				op = withOthers(limit, key, ofB, ofA)
			}
			res, err := []*proc{a, c}[i%2].do(op, 2*time.Second)
			must.Succeed(t, err)
			if res.Allowed {
				allowed++
				if res.Source != twotier.SourceFallback {
					t.Errorf("an answer in place of a node that is gone has the source %q",
						res.Source)
				}
			}
		}
		if allowed != limit {
			t.Errorf("%d were allowed, the limit is %d and its owner was there", allowed, limit)
		}
	})
}

// TestALimitHoldsWhoseOwnerIsReached cuts the network in one direction, while all nodes live.
// Another owner coordinates the acquires that the asked node can't, and no limit is exceeded, not
// even one of the owner that the asked node can't reach.
func TestALimitHoldsWhoseOwnerIsReached(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b, c := w.alive()[0], w.alive()[1], w.alive()[2]
		ofB, ofC := w.keysOf(b, "b", 8), w.keysOf(c, "c", 8)
		const limit = 10
		w.net.Cut(a.ip, b.ip, simnet.All)
		time.Sleep(2 * time.Second)
		for i := range ofB {
			op := withOthers(limit, ofC[i], ofB[i])
			if i%2 == 1 {
				op = withOthers(limit, ofB[i], ofC[i])
			}
			if i%4 < 2 {
				slices.Reverse(op.Checks) // the node that is asked first is another one
			}
			allowed := 0
			for n := range 2 * limit {
				res, err := []*proc{a, c}[n%2].do(op, 2*time.Second)
				if err == nil && res.Allowed {
					allowed++
				}
			}
			if allowed != limit {
				t.Errorf("%d of a limit of %d were allowed", allowed, limit)
			}
			time.Sleep(5 * time.Second)
		}
		w.net.Heal()
		time.Sleep(30 * time.Second)
	})
}
