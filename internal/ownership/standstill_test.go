package ownership_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/ownership"
)

// TestStandstill: a node that stood still makes no decisions until all others have flushed what
// they counted in its place. Then it decides again about the partitions that nobody has taken over,
// by the counts in the store.
func TestStandstill(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		c.agree(a, b)
		c.settle(a, b)
		flushed := make(chan struct{})
		b.counter.flush = func(context.Context) error {
			time.Sleep(500 * time.Millisecond)
			close(flushed)
			return nil
		}
		_, before := a.Figures()
		a.Relearn()
		for p := range partitions {
			if a.counter.owns(p) {
				t.Fatalf("partition %d is decided by what was known", p)
			}
		}
		p := 0
		for !a.table.Load().OwnedBySelf(p) {
			p++
		}
		to, err := a.Locate(t.Context(), p)
		select {
		case <-flushed:
		default:
			t.Error("the node decides before the other has flushed")
		}
		if to != nil || err != nil || !a.counter.owns(p) {
			t.Errorf("located at %v, %v", to, err)
		}
		c.settle(a, b)
		_, after := a.Figures()
		if n := after.FromStore - before.FromStore; int(n) != a.table.Load().OwnedCount(0) {
			t.Errorf("%d partitions begin with what the store has", n)
		}
	})
}

// TestStandstillOfAnOwnerThatWasReplaced: another node has taken the partitions over meanwhile. The
// owner names it as the decider, and takes the partitions over with its counts.
func TestStandstillOfAnOwnerThatWasReplaced(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.cut.Store(true)
		b.knows(b)
		c.settle(b)
		b.counter.mu.Lock()
		b.counter.keys[3] = append(b.counter.keys[3], "counted meanwhile")
		b.counter.mu.Unlock()
		a.cut.Store(false)
		a.knows(a, b)
		a.Relearn()
		for p := range partitions {
			if to, err := a.Locate(t.Context(), p); err != nil || to == nil || to.Name != "b" {
				t.Fatalf("partition %d: operations go to %v, %v, want b", p, to, err)
			}
			if d := c.deciders(p); len(d) != 1 {
				t.Fatalf("partition %d is decided by %v", p, d)
			}
		}
		c.agree(a, b)
		c.settle(a, b)
		for p := range partitions {
			if d := c.deciders(p); len(d) != 1 {
				t.Errorf("partition %d is decided by %v", p, d)
			}
		}
		holder := c.node(c.deciders(3)[0])
		if keys := holder.counter.keys[3]; keys[len(keys)-1] != "counted meanwhile" {
			t.Errorf("keys %v: a count is missing", keys)
		}
	})
}

// TestStandstillDuringATakeover: a node stands still while it claims partitions, or while they are
// claimed from it, for longer than either waits. The replies from before the standstill count for
// nothing: one node decides about each partition in the end, with all its keys.
func TestStandstillDuringATakeover(t *testing.T) {
	for name, taker := range map[string]bool{"of the taker": true, "of the giver": false} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
				c.delay = func() time.Duration { return 20 * time.Millisecond }
				c.agree(a, b)
				for at, _ := a.Figures(); at.Moving == 0; at, _ = a.Figures() {
					time.Sleep(5 * time.Millisecond)
				}
				if taker {
					b.Relearn()
				} else {
					a.Relearn()
				}
				for range 200 {
					time.Sleep(5 * time.Millisecond)
					for p := range partitions {
						if d := c.deciders(p); len(d) > 1 {
							t.Fatalf("partition %d is decided by %v", p, d)
						}
					}
				}
				c.settle(a, b)
				time.Sleep(time.Minute)
				c.checkKeys(0)
				if _, moves := b.Figures(); moves.FromStore > 0 {
					t.Errorf("%+v: partitions begin with what the store has", moves)
				}
			})
		})
	}
}

// TestStandInWithoutAStore: a node has counted in place of one that stood still, and the store does
// not take these counts. The node that is back gets them from the other one.
func TestStandInWithoutAStore(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		c.agree(a, b)
		c.settle(a, b)
		p := 0
		for !a.table.Load().OwnedBySelf(p) {
			p++
		}
		b.counter.mu.Lock()
		b.counter.keys[p] = []string{"counted in its place"}
		b.counter.mu.Unlock()
		b.counter.flush = func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("the store is down")
		}
		a.Relearn()
		c.settle(a, b)
		keys := a.counter.keys[p]
		if !a.counter.owns(p) || keys[len(keys)-1] != "counted in its place" {
			t.Errorf("keys %v: a count is missing", keys)
		}
	})
}

// TestStandstillAlone: a node that knows of no other has nothing to learn. A node whose mode is
// changing decides nothing, and does not resume with what it knew.
func TestStandstillAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		c.fill()
		a.Relearn()
		if a.HeldCount() != partitions {
			t.Errorf("%d partitions are held", a.HeldCount())
		}
		a.Suspend()
		b.knows(b)
		c.settle(b)
		a.knows(a, b)
		a.Relearn()
		a.Resume()
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			if d := c.deciders(0); len(d) != 1 {
				t.Fatalf("decided by %v", d)
			}
		}
		if h := a.Holdings(&ownership.HoldingsRequest{Partitions: []int{0}}); h.Later {
			t.Errorf("holdings %+v", h)
		}
	})
}
