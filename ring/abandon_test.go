package ring_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

// TestAbandonedRingIsNotAnnounced: the others still list a node that has abandoned the cluster when
// they would have heard that it left, and not for long after that.
func TestAbandonedRingIsNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, lan())
		v.startAll(3)
		v.agree(3*time.Second, 3, 1, 2, 3)
		r := v.rings[ip(3)]
		for range 2 {
			must.Succeed(t, r.Abandon())
		}
		must.Succeed(t, r.Close(context.Background()))
		delete(v.rings, ip(3))
		time.Sleep(2 * time.Second)
		if n := v.rings[ip(1)].Table().Len(); n != 3 {
			t.Errorf("%d members two seconds later", n)
		}
		t.Log("known after", v.agree(30*time.Second, 2, 1, 2))
	})
}
