package simtest

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/testing/must"
)

// TestNothingIsForwardedInRedisMode counts a key of another node before and after a change to Redis
// mode, in which every node asks Redis itself.
func TestNothingIsForwardedInRedisMode(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		a, b := w.alive()[0], w.alive()[1]
		op := adding(w.keysOf(b, "k", 1)[0])
		servedFor := func() int64 {
			before := b.node.Stats().ServedTotal
			for range 20 {
				_, err := a.do(op, 2*time.Second)
				must.Succeed(t, err)
			}
			return b.node.Stats().ServedTotal - before
		}
		if n := servedFor(); n != 20 {
			t.Errorf("%d of 20 operations reached the owner", n)
		}
		must.Succeed(t, a.setMode(cluster.Redis))
		if n := servedFor(); n != 0 {
			t.Errorf("in Redis mode %d of 20 operations were forwarded", n)
		}
	})
}
