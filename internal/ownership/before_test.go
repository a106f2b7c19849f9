package ownership_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/ownership"
)

// TestOnlyTheOwnerBeforeIsAsked lets one of eight nodes leave. The nodes that gain its partitions
// ask no other node.
func TestOnlyTheOwnerBeforeIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8)
		c.fill()
		c.agree(c.nodes...)
		c.settle(c.nodes...)
		leaver := c.nodes[0]
		held := leaver.HeldCount()
		c.sought.Store(0)
		leaver.leaves = true
		c.agree(c.nodes...)
		c.settle(c.nodes...)
		if n := c.sought.Load(); n == 0 || n > int64(held+2) { // some move between others
			t.Errorf("%d requests for holdings; the node that left held %d partitions", n, held)
		}
		if _, moves := leaver.Figures(); moves.Given != partitions || moves.Abandoned > 0 {
			t.Errorf("moves of the node that left: %+v", moves)
		}
	})
}

// TestAllAreAskedIfTheOwnerBeforeHoldsNothing gives a node a table whose owner of some partitions
// has not received them: a third node still holds them. When the node itself becomes their owner,
// the previous owner reports that it holds none, or replies too late.
func TestAllAreAskedIfTheOwnerBeforeHoldsNothing(t *testing.T) {
	for name, silent := range map[string]time.Duration{"at once": 0, "late": time.Second / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.fill()
				c.nodes[1].knows(c.nodes[0], c.nodes[2])
				time.Sleep(time.Second)
				c.seeking.Store(int64(silent))
				c.agree(c.nodes...)
				c.settle(c.nodes...)
				if _, moves := c.nodes[1].Figures(); moves.FromStore > 0 || moves.Taken == 0 {
					t.Errorf("moves %+v, want none from the store", moves)
				}
			})
		})
	}
}

// TestBrokenConnectionsAreNoAnswer breaks a few connections to the live holder in a row. The owner
// must not start from the store.
func TestBrokenConnectionsAreNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.fill()
		c.breaks.Store(4)
		c.agree(c.nodes...)
		c.settle(c.nodes...)
		if _, moves := c.nodes[1].Figures(); moves.FromStore > 0 || moves.Taken == 0 {
			t.Errorf("moves %+v, want none from the store", moves)
		}
		if left := c.breaks.Load(); left > 0 {
			t.Errorf("%d connections did not break", left)
		}
	})
}

// TestAnOwnerThatIsGone stops a member that the table still lists. The others start from the store
// before operations have waited for too long.
func TestAnOwnerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.fill()
		c.nodes[0].cut.Store(true)
		began := time.Now()
		c.nodes[1].knows(c.nodes...)
		c.settle(c.nodes[1])
		if took := time.Since(began); took > ownership.WaitTimeout/2 {
			t.Errorf("it took %v", took)
		}
	})
}
