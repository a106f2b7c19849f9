package ownership_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/ownership"
)

// TestOnlyTheOwnerBeforeIsAsked lets one of eight nodes leave. The nodes that gain its partitions
// ask no other node.
func TestOnlyTheOwnerBeforeIsAsked(t *testing.T) {
	withNodes(t, 8, func(t *testing.T, c *cluster) {
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
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				c.nodes[1].knows(c.nodes[0], c.nodes[2])
				time.Sleep(time.Second)
				c.seeking.Store(int64(silent))
				c.agree(c.nodes...)
				c.settle(c.nodes...)
				c.nodes[1].checkTaken()
			})
		})
	}
}

// TestBrokenConnectionsAreNoAnswer breaks a few connections to the live holder in a row. The owner
// must not start from the store.
func TestBrokenConnectionsAreNoAnswer(t *testing.T) {
	withNodes(t, 2, func(t *testing.T, c *cluster) {
		c.breaks.Store(4)
		c.agree(c.nodes...)
		c.settle(c.nodes...)
		c.nodes[1].checkTaken()
		if left := c.breaks.Load(); left > 0 {
			t.Errorf("%d connections did not break", left)
		}
	})
}

// TestAnOwnerThatIsGone stops a member that the table still lists. The others start from the store
// before operations have waited for too long.
func TestAnOwnerThatIsGone(t *testing.T) {
	withNodes(t, 2, func(t *testing.T, c *cluster) {
		c.nodes[0].cut.Store(true)
		began := time.Now()
		c.nodes[1].knows(c.nodes...)
		c.settle(c.nodes[1])
		if took := time.Since(began); took > ownership.WaitTimeout/2 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestAPartitionThatHasGoneElsewhere claims several partitions from a node that has meanwhile given
// one of them to a third node, and takes long over the rest. The claiming node must name the third
// node as the decider at once: otherwise, if the first node stopped now, the claiming node would
// count in its place although the third node decides.
func TestAPartitionThatHasGoneElsewhere(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		a, b, third := c.nodes[0], c.nodes[1], c.nodes[2]
		b.knows(a, b, third) // the others don't know it and still hold whatever it asks for
		time.Sleep(time.Second)
		c.agree(a, third)
		c.seeking.Store(int64(900 * time.Millisecond))
		c.settle(a, third)
		time.Sleep(500 * time.Millisecond)
		for p := range partitions {
			if third.counter.owns(p) && b.DecidedBy(&a.self, p) {
				t.Errorf("partition %d: b stands in for a, before it knows who has it", p)
			}
		}
		time.Sleep(time.Second)
		moved := 0
		for p := range partitions {
			if !b.table.Load().OwnedBySelf(p) || !third.counter.owns(p) {
				continue
			}
			moved++
			if b.DecidedBy(&a.self, p) {
				t.Errorf("partition %d: b stands in for a, which has given it away", p)
			}
			if to, err := b.Locate(t.Context(), p); err != nil || to == nil || to.Name != "c" {
				t.Errorf("partition %d: b sends operations to %v, %v, want c", p, to, err)
			}
		}
		if moved == 0 {
			t.Error("nothing that b claims has gone to c")
		}
	})
}

// TestRandomTables announces leaving members to nodes at random, late and in any order. At no time
// do two nodes decide about a partition, and in the end each belongs to its owner, with all its
// keys. Every other run occasionally loses a message and sends it again, and every third run
// occasionally begins a change of mode and aborts it.
func TestRandomTables(t *testing.T) {
	for run := range 24 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			randomTables(t, seed, run%3 == 0, func() time.Duration {
				if run%2 == 0 && rand.IntN(20) == 0 {
					return time.Duration(1+rand.IntN(500)) * time.Millisecond
				}
				return time.Duration(1+rand.IntN(7)) * time.Millisecond
			})
		})
	}
}

func randomTables(t *testing.T, seed uint64, aborts bool, delay func() time.Duration) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t, 4)
	c.fill()
	c.delay = delay
	watch := time.NewTicker(time.Millisecond)
	defer watch.Stop()
	for range 30 { // shorter than abandonTimeout: nothing is let go
		for _, n := range c.nodes[1:] { // one stays
			n.leaves = r.IntN(2) == 0
		}
		c.nodes[r.IntN(len(c.nodes))].knows(c.nodes...)
		if aborts && r.IntN(4) == 0 {
			c.abortAChange(r)
		}
		for range r.IntN(150) {
			<-watch.C
			synctest.Wait() // the loop below asks one node at a time
			c.checkDeciders(0)
		}
	}
	c.agree(c.nodes...)
	c.settle(c.nodes...)
	c.checkKeys()
}

// abortAChange suspends all nodes, one after the other, and has them resume in any order.
func (c *cluster) abortAChange(r *rand.Rand) {
	for _, i := range r.Perm(len(c.nodes)) {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		c.nodes[i].Suspend()
	}
	time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	for _, i := range r.Perm(len(c.nodes)) {
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		c.nodes[i].Resume()
	}
}

// checkKeys checks that exactly one node decides about each partition and has all its keys.
func (c *cluster) checkKeys() {
	c.t.Helper()
	c.checkDeciders(1)
	for p := range partitions {
		if got := len(c.node(c.deciders(p)[0]).counter.keys[p]); got != 1+p%3 {
			c.t.Errorf("partition %d has %d keys, want %d", p, got, 1+p%3)
		}
	}
}
