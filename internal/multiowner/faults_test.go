package multiowner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
)

// faultAt makes a node fail when it gets a task with this verb.
func faultAt(n *node, verb rpc.Verb, fault func()) {
	n.before = func(task *rpc.Task) {
		if task.Verb == verb {
			fault()
		}
	}
}

// TestFaultsBetweenTheSteps makes an owner fail at each of the steps. a runs the acquire, b
// reserves and c decides. Everything ends well within the time that an owner keeps asking.
func TestFaultsBetweenTheSteps(t *testing.T) {
	const in = 5 * time.Second
	for name, test := range map[string]struct {
		fault func(c *cluster)
		told  error
		state string
		takes time.Duration // until this state is reached, at most
	}{
		"the answer to a reservation is lost": {func(c *cluster) {
			c.nodes[1].loses.Store(1)
		}, twotier.ErrNotOwner, "[0 0 0] 0", 0},
		"a reservation and its end are lost": {func(c *cluster) {
			c.nodes[1].loses.Store(1)
			faultAt(c.nodes[1], rpc.VerbUndo, func() { c.nodes[1].cut.Store(true) })
		}, twotier.ErrUnknownOutcome, "[0 0 0] 0", in},
		"the decider can't be reached": {func(c *cluster) {
			c.nodes[2].cut.Store(true)
		}, rpc.ErrUnreachable, "[0 0 0] 0", 0},
		"the decider refuses, its answer is lost": {func(c *cluster) {
			c.nodes[2].limit = 0
			c.nodes[2].loses.Store(1)
		}, twotier.ErrUnknownOutcome, "[0 0 0] 0", in},
		"the decider counts, its answer is lost": {func(c *cluster) {
			c.nodes[2].loses.Store(1)
		}, twotier.ErrUnknownOutcome, "[1 1 1] 0", in},
		"the answer to a confirmation is lost": {func(c *cluster) {
			c.nodes[1].keep.Store(1)
			c.nodes[1].loses.Store(1)
		}, twotier.ErrUnknownOutcome, "[1 1 1] 0", in},
		"a confirmation does not arrive": {func(c *cluster) {
			faultAt(c.nodes[1], rpc.VerbConfirm, func() { c.nodes[1].cut.Store(true) })
		}, twotier.ErrUnknownOutcome, "[1 1 1] 0", in},
		"the decider dies before it decides": {func(c *cluster) {
			faultAt(c.nodes[2], rpc.VerbDecide, func() { c.leave("c") })
		}, rpc.ErrUnreachable, "[0 0 0] 0", 0},
		"the decider dies after it has decided": {func(c *cluster) {
			c.nodes[2].loses.Store(1)
			c.nodes[2].after = func() { c.leave("c") }
		}, twotier.ErrUnknownOutcome, "[1 1 1] 0", in},
		"the decider is cut off after it has decided": {func(c *cluster) {
			c.nodes[2].loses.Store(1)
			c.nodes[2].after = func() { c.nodes[2].cut.Store(true) }
		}, twotier.ErrUnknownOutcome, "[1 1 1] 0", 2 * multiowner.ReserveLimit},
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				test.fault(c)
				_, err := c.acquire(t, 1, "a", "b", "c")
				if !errors.Is(err, test.told) {
					t.Errorf("told %v, want %v", err, test.told)
				}
				synctest.Wait()
				time.Sleep(test.takes)
				synctest.Wait()
				if state := c.state(); state != test.state {
					t.Errorf("state %s after %v, want %s", state, test.takes, test.state)
				}
			})
		})
	}
}

// leave makes a node leave the members, unreachable.
func (c *cluster) leave(name string) {
	c.gone.Store(&name)
	c.node(name).cut.Store(true)
}

// serve has a node run a task.
func (n *node) serve(ctx context.Context, task rpc.Task) error {
	var res [1]twotier.Result
	n.Serve(ctx, []rpc.Task{task}, res[:])
	return res[0].Err
}

// step returns a step of an acquire that c decides and whose coordinator has died.
func step(verb rpc.Verb) rpc.Task {
	task := rpc.Task{Verb: verb, Acquire: rpc.AcquireID{Coordinator: "dead", Number: 1}}
	if verb == rpc.VerbReserve || verb == rpc.VerbDecide {
		task.Decider = "c"
		task.Op = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"),
			N: 1}}}
	}
	return task
}

// TestCoordinatorDies between the steps: after b has reserved, or after c has decided as well. b
// asks, and a late message does not make the answer wrong.
func TestCoordinatorDies(t *testing.T) {
	for name, test := range map[string]struct {
		decided bool
		state   string
	}{"before the decision": {false, "[0 0 0] 0"}, "after it": {true, "[0 1 1] 0"}} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				must.Succeed(t, c.nodes[1].serve(t.Context(), step(rpc.VerbReserve)))
				if c.nodes[1].Idle() {
					t.Error("idle with a reservation")
				}
				if test.decided {
					must.Succeed(t, c.nodes[2].serve(t.Context(), step(rpc.VerbDecide)))
				}
				time.Sleep(3 * time.Second)
				if c.state() != test.state || !c.nodes[1].Idle() {
					t.Errorf("state %s, want %s", c.state(), test.state)
				}
				if !test.decided {
					err := c.nodes[2].serve(t.Context(), step(rpc.VerbDecide))
					if !errors.Is(err, twotier.ErrNotOwner) || c.state() != test.state {
						t.Errorf("a late message is carried out: %v, state %s", err, c.state())
					}
				}
			})
		})
	}
}

// TestDeciderThatNobodyReaches: the reservation is counted, at once if the decider is no longer a
// member, or else after ten seconds.
func TestDeciderThatNobodyReaches(t *testing.T) {
	for name, test := range map[string]struct {
		harm  func(c *cluster)
		after time.Duration
	}{
		"gone": {func(c *cluster) { c.leave("c") }, 2 * time.Second},
		"cut":  {func(c *cluster) { c.nodes[2].cut.Store(true) }, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				must.Succeed(t, c.nodes[1].serve(t.Context(), step(rpc.VerbReserve)))
				test.harm(c)
				time.Sleep(test.after - 1100*time.Millisecond)
				if c.state() != "[0 0 0] 1" {
					t.Errorf("state %s before the time is up", c.state())
				}
				time.Sleep(1100 * time.Millisecond)
				if c.state() != "[0 1 0] 0" {
					t.Errorf("state %s after %v", c.state(), test.after)
				}
			})
		})
	}
}

// TestCoordinatorThatLivesTells: the decider's death is no reason to count while the coordinator
// may know that the decider was never asked.
func TestCoordinatorThatLivesTells(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		reserve, undo := step(rpc.VerbReserve), step(rpc.VerbUndo)
		reserve.Acquire.Coordinator, undo.Acquire.Coordinator = "a", "a"
		must.Succeed(t, c.nodes[1].serve(t.Context(), reserve))
		c.leave("c")
		time.Sleep(5 * time.Second)
		if c.state() != "[0 0 0] 1" {
			t.Errorf("state %s while the coordinator is at it", c.state())
		}
		if err := c.nodes[1].serve(t.Context(), undo); err != nil || c.state() != "[0 0 0] 0" {
			t.Errorf("%v, state %s after it has said so", err, c.state())
		}
		time.Sleep(time.Minute)
		if c.state() != "[0 0 0] 0" {
			t.Errorf("state %s in the end", c.state())
		}
	})
}

// TestUndoThatComesTooLate: b is cut off from the others and counts its reservation, because it
// can't learn the outcome. The coordinator has given up and learns of the count from the undo:
// otherwise it would begin again elsewhere, and the acquire would count twice.
func TestUndoThatComesTooLate(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		must.Succeed(t, c.nodes[1].serve(t.Context(), step(rpc.VerbReserve)))
		c.leave("c")
		time.Sleep(3 * time.Second)
		err := c.nodes[1].serve(t.Context(), step(rpc.VerbUndo))
		if !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("undone: %v, state %s", err, c.state())
		}
		synctest.Wait()
		if c.state() != "[0 0 0] 0" {
			t.Errorf("state %s once it is undone", c.state())
		}
		// The report comes once, so that the coordinator does not ask again.
		if err := c.nodes[1].serve(t.Context(), step(rpc.VerbUndo)); err != nil {
			t.Errorf("again: %v", err)
		}
		if c.nodes[1].idled.Load() {
			t.Error("idle while it counted")
		}
		time.Sleep(time.Hour)
		if n := c.nodes[1].Ended(); n != 0 {
			t.Errorf("%d endings are remembered for ever", n)
		}
	})
}

// TestSettledTwiceAtOnce: while b waits for the answer of a leaving decider that has everything
// settled, the decider goes away and b counts. The answer, which is no, must not make b forget its
// report to the coordinator.
func TestSettledTwiceAtOnce(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		must.Succeed(t, c.nodes[1].serve(t.Context(), step(rpc.VerbReserve)))
		asked, answer := make(chan struct{}), make(chan struct{})
		c.answers = func() { close(asked); <-answer }
		go func() { _ = c.nodes[1].Settle(t.Context(), &multiowner.SettleRequest{Decider: "c"}) }()
		<-asked
		c.answers = nil
		c.leave("c")
		time.Sleep(3 * time.Second)
		if c.state() != "[0 1 0] 0" {
			t.Fatalf("state %s after the decider has gone", c.state())
		}
		close(answer)
		synctest.Wait()
		err := c.nodes[1].serve(t.Context(), step(rpc.VerbUndo))
		if !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("undone: %v, state %s", err, c.state())
		}
	})
}

// TestReservationThatComesTooLate: a reservation that takes so long that its undo arrives first,
// for example because its keys have to be read, is refused. With the decider gone it would be
// counted.
func TestReservationThatComesTooLate(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		must.Succeed(t, c.nodes[1].serve(t.Context(), step(rpc.VerbUndo)))
		err := c.nodes[1].serve(t.Context(), step(rpc.VerbReserve))
		if !errors.Is(err, twotier.ErrNotOwner) || c.state() != "[0 0 0] 0" {
			t.Errorf("reserved: %v, state %s", err, c.state())
		}
		c.leave("c")
		time.Sleep(time.Minute)
		if c.state() != "[0 0 0] 0" {
			t.Errorf("state %s in the end", c.state())
		}
	})
}

// TestDeciderLeaves has all others settle the reservations that depend on the decider, long before
// they would on their own. They need not reach the decider for that.
func TestDeciderLeaves(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		c.nodes[2].drops.Store(true)
		for _, decided := range []bool{true, false} {
			reserve, decide := step(rpc.VerbReserve), step(rpc.VerbDecide)
			if !decided {
				reserve.Acquire.Number = 2
			}
			must.Succeed(t, c.nodes[1].serve(t.Context(), reserve))
			if decided {
				must.Succeed(t, c.nodes[2].serve(t.Context(), decide))
			}
		}
		if c.state() != "[0 0 1] 2" {
			t.Fatalf("state %s", c.state())
		}
		c.nodes[2].Leave(t.Context())
		if c.state() != "[0 1 1] 0" {
			t.Errorf("state %s after the decider has left", c.state())
		}
	})
}

// TestDeciderThatHasLeft: once a decider has had everything settled, no node reserves for it, and
// it decides nothing. Otherwise the reservations would be counted once it is gone.
func TestDeciderThatHasLeft(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		c.nodes[2].Leave(t.Context())
		for i, verb := range map[int]rpc.Verb{1: rpc.VerbReserve, 2: rpc.VerbDecide} {
			err := c.nodes[i].serve(t.Context(), step(verb))
			if !errors.Is(err, twotier.ErrNotOwner) {
				t.Errorf("verb %d: %v, want %v", verb, err, twotier.ErrNotOwner)
			}
		}
		c.leave("c")
		time.Sleep(time.Minute)
		if c.state() != "[0 0 0] 0" {
			t.Errorf("state %s after the decider has left", c.state())
		}
	})
}
