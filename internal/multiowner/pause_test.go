package multiowner_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
)

// goOn ends a node's standstill: it can be reached, and is a member again.
func (c *cluster) goOn(n *node) {
	c.gone.Store(new(string))
	n.cut.Store(false)
	n.drops.Store(false)
	select {
	case <-n.still:
	default:
		close(n.still)
	}
}

// TestHolderThatStoodStill: b stands still after it has reserved, for longer than the coordinator
// announces the outcome. Later acquires settle the number of this one. When b goes on, it still
// learns the outcome.
func TestHolderThatStoodStill(t *testing.T) {
	for name, test := range map[string]struct {
		limit int64 // of the decider
		told  error
		state string
	}{
		"carried out":     {10, twotier.ErrUnknownOutcome, "[2 1 2] 0"},
		"not carried out": {0, twotier.ErrUnknownOutcome, "[0 0 0] 0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, "b")
				b, d := c.node("b"), c.node("c")
				d.limit = test.limit
				d.after = func() { b.cut.Store(true) } // it has decided
				if _, err := c.acquire(t, 1, "a", "b", "c"); !errors.Is(err, test.told) {
					t.Fatalf("got %v", err)
				}
				d.after = nil
				time.Sleep(3 * multiowner.ReserveLimit)
				if res, err := c.acquire(t, 1, "a", "c"); err != nil ||
					res.Allowed != (test.limit > 0) {
					t.Fatal(res, err)
				}
				if d.Outcomes() > 1 {
					t.Errorf("the decider remembers %d outcomes", d.Outcomes())
				}
				c.goOn(b)
				time.Sleep(3 * time.Second)
				if state := c.state(); state != test.state {
					t.Errorf("state %s, want %s", state, test.state)
				}
				time.Sleep(time.Hour)
				for _, n := range c.nodes {
					if n.Ended()+n.Verdicts() > 0 {
						t.Errorf("%s remembers something for ever", n.self.Name)
					}
				}
			})
		})
	}
}

// TestDeciderThatStoodStill: c stands still when it is to decide, and is declared dead. The
// reservations are counted. When c goes on, all or nothing is counted, whether or not c had decided
// before and whether or not the coordinator has died meanwhile.
func TestDeciderThatStoodStill(t *testing.T) {
	for name, test := range map[string]struct {
		decided, died bool
		meanwhile     string
		state         string
	}{
		"before it decided":                       {false, false, "[1 1 0] 0", "[0 0 0] 0"},
		"after it decided":                        {true, false, "[1 1 1] 0", "[1 1 1] 0"},
		"before it decided, the coordinator died": {false, true, "[0 1 0] 0", "[0 0 0] 0"},
		"after it decided, the coordinator died":  {true, true, "[0 1 1] 0", "[0 1 1] 0"},
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				d := c.node("c")
				if test.died {
					must.Succeed(t, c.node("b").serve(t.Context(), step(rpc.VerbReserve)))
					if test.decided {
						must.Succeed(t, d.serve(t.Context(), step(rpc.VerbDecide)))
					}
				} else {
					d.drops.Store(!test.decided)
					if test.decided {
						d.loses.Store(1)
					}
					if _, err := c.acquire(t, 1, "a", "b", "c"); !errors.Is(err,
						twotier.ErrUnknownOutcome) {
						t.Fatalf("got %v", err)
					}
				}
				c.leave("c")
				time.Sleep(2 * time.Minute)
				if state := c.state(); state != test.meanwhile {
					t.Errorf("state %s meanwhile, want %s", state, test.meanwhile)
				}
				c.node("a").failWith(twotier.ErrUnavailable) // it can take nothing back for a while
				c.goOn(d)
				time.Sleep(3 * time.Second)
				c.node("a").failWith(nil)
				time.Sleep(multiowner.HeardTime)
				if state := c.state(); state != test.state {
					t.Errorf("state %s in the end, want %s", state, test.state)
				}
			})
		})
	}
}

// TestTakingBackWaitsForTheCount: b may no longer own the key that it counted in doubt when the
// acquire turns out not to have been carried out. Another owner can take the count back only once
// it has it.
func TestTakingBackWaitsForTheCount(t *testing.T) {
	for name, answers := range map[string]func(b *node){
		"b does not decide":        func(b *node) { b.move() },
		"b can't tell if it does":  func(b *node) { b.failWith(twotier.ErrUnavailable) },
		"the new owner has failed": func(b *node) { b.move(); b.failWith(twotier.ErrUnavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 3, func(t *testing.T, c *cluster) {
				b, d := c.node("b"), c.node("c")
				d.drops.Store(true)
				if _, err := c.acquire(t, 1, "a", "b", "c"); !errors.Is(err,
					twotier.ErrUnknownOutcome) {
					t.Fatalf("got %v", err)
				}
				c.leave("c")
				time.Sleep(2 * time.Minute)
				answers(b)
				back := time.Now()
				c.goOn(d)
				time.Sleep(multiowner.HeardTime + multiowner.ReserveLimit)
				b.failWith(nil)
				time.Sleep(time.Minute)
				if state := c.state(); state != "[0 0 0] 0" {
					t.Errorf("state %s in the end", state)
				}
				if len(b.tookBack) != 1 || b.tookBack[0].Sub(back) < multiowner.HeardTime {
					t.Errorf("taken back at %v, want once, at least %v after %v", b.tookBack,
						multiowner.HeardTime, back)
				}
			})
		})
	}
}

// TestNumbersInDoubtHoldUpNobodyElse: while an acquire is in doubt, other deciders keep forgetting
// settled acquires, and so does the decider that has returned.
func TestNumbersInDoubtHoldUpNobodyElse(t *testing.T) {
	withNodes(t, 3, func(t *testing.T, c *cluster) {
		for _, n := range c.nodes {
			n.limit = 1000
		}
		d := c.node("c")
		d.drops.Store(true)
		if _, err := c.acquire(t, 1, "a", "b", "c"); !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Fatalf("got %v", err)
		}
		c.leave("c")
		time.Sleep(time.Minute)
		for range 5 {
			_, err := c.acquire(t, 1, "a", "b")
			must.Succeed(t, err)
		}
		if n := c.node("b").Outcomes(); n != 1 {
			t.Errorf("b remembers %d outcomes, want the last", n)
		}
		c.goOn(d)
		time.Sleep(multiowner.RefusedTime + time.Minute)
		for range 5 {
			_, err := c.acquire(t, 1, "a", "c")
			must.Succeed(t, err)
		}
		if n := d.Outcomes(); n != 1 {
			t.Errorf("c remembers %d outcomes, want the last", n)
		}
	})
}
