package ownership_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAPartitionThatHasGoneElsewhere claims several partitions from a node that has meanwhile given
// one of them to a third node, and takes long over the rest. The claiming node must name the third
// node as the decider at once: otherwise, if the first node stopped now, the claiming node would
// count in its place although the third node decides.
func TestAPartitionThatHasGoneElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		a, b, third := c.nodes[0], c.nodes[1], c.nodes[2]
		c.fill()
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
