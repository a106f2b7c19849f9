package ownership_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

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
			for p := range partitions {
				if d := c.deciders(p); len(d) > 1 {
					t.Fatalf("seed %d: partition %d is decided by %v", seed, p, d)
				}
			}
		}
	}
	c.agree(c.nodes...)
	c.settle(c.nodes...)
	c.checkKeys(seed)
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
func (c *cluster) checkKeys(seed uint64) {
	c.t.Helper()
	for p := range partitions {
		d := c.deciders(p)
		if len(d) != 1 {
			c.t.Fatalf("seed %d: partition %d is decided by %v in the end", seed, p, d)
		}
		if got := len(c.node(d[0]).counter.keys[p]); got != 1+p%3 {
			c.t.Errorf("seed %d: partition %d has %d keys, want %d", seed, p, got, 1+p%3)
		}
	}
}
