package ownership_test

import (
	"context"
	"errors"
	"slices"
	"testing"
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
		p := a.partition(true)
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
		c.checkDeciders(1)
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
				a.awaitMoving()
				if taker {
					b.Relearn()
				} else {
					a.Relearn()
				}
				for range 200 {
					time.Sleep(5 * time.Millisecond)
					c.checkDeciders(0)
				}
				c.settle(a, b)
				time.Sleep(time.Minute)
				c.checkKeys()
				b.checkTaken()
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
		p := a.partition(true)
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
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
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

// TestSuspension ends all decisions. If the change of mode is aborted, the node owns its partitions
// again at once; if not, it asks others for them.
func TestSuspension(t *testing.T) {
	withNodes(t, 1, func(t *testing.T, c *cluster) {
		a := c.nodes[0]
		a.Suspend()
		if a.HeldCount() != 0 || len(c.deciders(0)) != 0 {
			t.Error("decides while it is suspended")
		}
		if h := a.Holdings(&ownership.HoldingsRequest{Partitions: []int{0}}); !h.Later ||
			h.Held != nil {
			t.Errorf("holdings %+v: another might begin with what the store has", h)
		}
		located := make(chan error)
		go func() { _, err := a.Locate(t.Context(), 0); located <- err }()
		time.Sleep(time.Second)
		a.Resume()
		if err := <-located; err != nil || a.HeldCount() != partitions {
			t.Errorf("%v, %d partitions are held", err, a.HeldCount())
		}
		a.Suspend()
		a.inRedis.Store(true)
		a.DiscardSuspended()
		a.WakeWaiters()
		if _, err := a.Locate(t.Context(), 0); !errors.Is(err, ownership.ErrInRedis) {
			t.Errorf("in Redis: %v", err)
		}
		if h := a.Holdings(&ownership.HoldingsRequest{Partitions: []int{0}}); !h.Later {
			t.Errorf("holdings %+v: another might decide beside those that count in Redis", h)
		}
		a.inRedis.Store(false)
		a.Resume()
		c.settle(a)
		if _, moves := a.Figures(); moves.FromStore != 2*partitions {
			t.Errorf("%+v: the partitions are held at once after the mode has changed", moves)
		}
	})
}

// TestAnAbortedChangeKeepsWhatIsBeingHandedOver aborts a change of mode that began while partitions
// move. One node decides about each of them, with all its keys, whichever of the two resumes first
// and however much the taker could still report.
func TestAnAbortedChangeKeepsWhatIsBeingHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		takerLate time.Duration // delay of its suspension after the giver's
		first     int           // which node continues first
		cut       bool          // the giver can't be reached while the mode changes
	}{
		"both at once":       {0, 0, false},
		"the taker later":    {50 * time.Millisecond, 0, false},
		"the taker first":    {0, 1, false},
		"no word meanwhile":  {0, 0, true},
		"no word, the other": {30 * time.Millisecond, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
				c.delay = func() time.Duration { return 20 * time.Millisecond }
				c.agree(a, b)
				a.awaitMoving()
				a.Suspend()
				a.cut.Store(test.cut)
				time.Sleep(test.takerLate)
				b.Suspend()
				time.Sleep(300 * time.Millisecond)
				for p := range partitions {
					if d := c.deciders(p); len(d) > 0 {
						t.Fatalf("partition %d is decided by %v while the mode changes", p, d)
					}
				}
				a.cut.Store(false)
				c.nodes[test.first].Resume()
				time.Sleep(100 * time.Millisecond)
				c.nodes[1-test.first].Resume()
				c.settle(a, b)
				time.Sleep(time.Minute)
				c.checkKeys()
				b.checkTaken()
			})
		})
	}
}

// TestAHolderThatIsSuspendedForLong: a node gains partitions whose holder is preparing to change
// the mode, or begins to while they are claimed. The change takes longer than operations wait, and
// is aborted. Nothing starts from the store, which may lack the holder's counts.
func TestAHolderThatIsSuspendedForLong(t *testing.T) {
	for name, before := range map[string]bool{
		"before it is asked": true, "when it is claimed": false,
	} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
				c.delay = func() time.Duration { return 20 * time.Millisecond }
				if before {
					a.Suspend()
				}
				c.agree(a, b)
				if !before {
					for at, _ := b.Figures(); at.Incoming == 0; at, _ = b.Figures() {
						time.Sleep(5 * time.Millisecond)
					}
					time.Sleep(50 * time.Millisecond)
					a.Suspend()
				}
				time.Sleep(15 * time.Second)
				a.Resume()
				c.settle(a, b)
				c.checkKeys()
				b.checkTaken()
			})
		})
	}
}

// TestAHolderWaitsForASlowSearch: the owner of partitions does not know their holder and has to ask
// all others, one of which is changing its mode. The holder keeps the partitions meanwhile.
func TestAHolderWaitsForASlowSearch(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		holder, owner, busy := c.nodes[0], c.nodes[1], c.nodes[2]
		busy.Suspend()
		owner.knows(busy)
		time.Sleep(time.Second)
		c.agree(c.nodes...)
		time.Sleep(15 * time.Second)
		if at, moves := holder.Figures(); at.Outgoing == 0 || moves.Abandoned > 0 {
			t.Errorf("%+v, %+v: partitions were let go while their owner looks for them", at, moves)
		}
		busy.Resume()
		c.settle(c.nodes...)
		c.checkKeys()
		for _, n := range c.nodes[1:] {
			n.checkTaken()
		}
	})
}

// TestASearchKeepsOnlyItsPartition: the owner of many partitions looks for the holder of one of
// them and claims none. The holder keeps that one and lets the others go.
func TestASearchKeepsOnlyItsPartition(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, holder, owner *node) {
		sought := -1
		c.holdings = func(q *ownership.HoldingsRequest) *ownership.HoldingsResponse {
			if sought < 0 {
				sought = q.Partitions[0]
			}
			a := new(ownership.HoldingsResponse)
			if slices.Contains(q.Partitions, sought) {
				a.Sought = []int{sought}
			}
			return a
		}
		owner.cut.Store(true)
		holder.knows(holder, owner)
		time.Sleep(20 * time.Second)
		if at, moves := holder.Figures(); at.Outgoing != 1 || moves.Abandoned == 0 {
			t.Errorf("%+v, %+v: want one partition to be kept, and the others let go", at, moves)
		}
	})
}

// TestAChangeDuringAHandover: the change succeeds. All counts being handed over are in the store,
// and no node takes precedence once the mode changes back.
func TestAChangeDuringAHandover(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		c.delay = func() time.Duration { return 20 * time.Millisecond }
		c.agree(a, b)
		a.awaitMoving()
		for _, n := range c.nodes {
			n.Suspend()
		}
		for _, n := range c.nodes {
			n.inRedis.Store(true)
			n.DiscardSuspended()
			n.WakeWaiters()
			if held := n.HeldCount(); held > 0 {
				t.Errorf("%s holds %d partitions in Redis", n.self.Name, held)
			}
		}
		time.Sleep(time.Second)
		for _, n := range c.nodes {
			n.inRedis.Store(false)
			n.Resume()
		}
		c.settle(a, b)
	})
}
