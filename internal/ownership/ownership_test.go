package ownership_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/ring"
)

// TestNothingIsHandedOverTooEarly: the holder decides until its own table assigns the partition to
// the new owner, and the new owner knows that.
func TestNothingIsHandedOverTooEarly(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		b.knows(a, b)
		time.Sleep(10 * time.Second)
		b.leaves = true
		a.knows(a, b) // but not that b is to own anything
		b.leaves = false
		p := b.partition(true)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if got := c.deciders(p); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("partition %d is decided by %v, want a", p, got)
			}
		}
		if to, err := b.Locate(t.Context(), p); err != nil || to == nil || to.Name != "a" {
			t.Errorf("b sends operations to %v, %v, want a", to, err)
		}
		if !b.DecidedBy(&a.self, p) || b.DecidedBy(&b.self, p) {
			t.Error("b does not know who decides")
		}
		a.knows(a, b)
		c.settle(a, b)
		if to, err := b.Locate(t.Context(), p); err != nil || to != nil {
			t.Errorf("b sends operations to %v, %v, want none elsewhere", to, err)
		}
		if to, err := a.Locate(t.Context(), p); err != nil || to == nil || to.Name != "b" {
			t.Errorf("a sends operations to %v, %v, want b", to, err)
		}
	})
}

// TestTakeoverWithoutAHolder starts from the store if there was no holder, if it can't be reached,
// or if it can't prepare the partition.
func TestTakeoverWithoutAHolder(t *testing.T) {
	for name, harm := range map[string]func(c *cluster){
		"unreachable": func(c *cluster) { c.nodes[0].cut.Store(true) },
		"can't cede":  func(c *cluster) { c.nodes[0].counter.fails = errors.New("busy") },
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(t, 2, func(t *testing.T, c *cluster) {
				harm(c)
				c.agree(c.nodes...)
				c.settle(c.nodes...)
				if _, moves := c.nodes[1].Figures(); moves.FromStore == 0 || moves.Taken != 0 {
					t.Errorf("moves %+v", moves)
				}
				if _, moves := c.nodes[0].Figures(); moves.Abandoned == 0 || moves.Given != 0 {
					t.Errorf("moves of the holder %+v", moves)
				}
			})
		})
	}
}

// TestHandoffThatHasToWait blocks a handoff for longer than any wait: the holder goes on deciding,
// and hands the partitions over in the end. Nothing starts from the store.
func TestHandoffThatHasToWait(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.counter.fail(twotier.ErrUnavailable)
		c.agree(a, b)
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait() // operations begun at the same moment fail at once
			for p := range partitions {
				if at := c.deciders(p); len(at) != 1 || at[0] != "a" {
					t.Fatalf("%v decide about partition %d", at, p)
				}
			}
		}
		if _, moves := a.Figures(); moves.TakenBack == 0 {
			t.Error("no partition was to be handed over")
		}
		a.counter.fail(nil)
		c.settle(a, b)
		_, given := a.Figures()
		_, taken := b.Figures()
		if given.Given == 0 || given.Abandoned > 0 || taken.FromStore > 0 {
			t.Errorf("moves %+v and %+v", given, taken)
		}
	})
}

// TestPagesThatAreOutOfDate requests pages again from the first one, however often they expire:
// nothing arrives twice, and nothing starts from the store.
func TestPagesThatAreOutOfDate(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		c.expired.Store(100)
		c.agree(a, b)
		c.settle(a, b)
		if left := c.expired.Load(); left > 0 {
			t.Fatalf("%d more pages could have been out of date", left)
		}
		for p := range partitions {
			if got := len(b.counter.keys[p]); b.table.Load().OwnedBySelf(p) && got != 1+p%3 {
				t.Errorf("partition %d: %d keys came along, want %d", p, got, 1+p%3)
			}
		}
		b.checkTaken()
	})
}

// TestWhatIsLostWhileItIsSought: a node finds that a partition has no holder, but the table has
// assigned the partition to another node meanwhile. It must not decide about it until it owns it
// again.
func TestWhatIsLostWhileItIsSought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		c.delay = func() time.Duration { return 500 * time.Millisecond }
		a.leaves = true
		c.agree(a, b)
		time.Sleep(300 * time.Millisecond)
		if at, _ := b.Figures(); at.Incoming != partitions {
			t.Fatalf("%+v, want all to be sought", at)
		}
		a.leaves, b.leaves = false, true
		c.agree(a, b)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			for p := range partitions {
				if b.counter.owns(p) {
					t.Fatalf("partition %d is decided by %v", p, c.deciders(p))
				}
			}
		}
		c.settle(a, b)
		a.leaves, b.leaves = true, false
		c.agree(a, b)
		c.settle(a, b)
		if b.HeldCount() != partitions {
			t.Errorf("b has %d partitions in the end", b.HeldCount())
		}
	})
}

// TestTakerDiesBeforeItHasAll: the holder decides again, and nothing is lost.
func TestTakerDiesBeforeItHasAll(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.knows(a, b)
		p := a.partition(false)
		if got := a.handOff(b.self, p); got.State != ownership.Given ||
			len(c.deciders(p)) != 0 {
			t.Fatalf("page %+v, decided by %v", got, c.deciders(p))
		}
		if _, err := a.Locate(t.Context(), p); err != nil {
			t.Error(err) // operations go to the new decider
		}
		a.knows(a)
		c.settle(a)
		if _, moves := a.Figures(); moves.TakenBack != 1 || len(a.counter.keys[p]) != 1+p%3 {
			t.Errorf("moves %+v, %d keys", moves, len(a.counter.keys[p]))
		}
	})
}

// TestWhatIsNotWantedIsTakenBack: a node refuses a partition that was handed over to it.
func TestWhatIsNotWantedIsTakenBack(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.knows(a, b)
		p := a.partition(false)
		a.handOff(b.self, p)
		stranger := ring.Member{ID: "y", Name: "y"}
		a.HandOff(t.Context(), &ownership.ClaimRequest{By: stranger,
			Refused: []int{p, -1, partitions}})
		if len(c.deciders(p)) != 0 {
			t.Error("taken back from who was never given it")
		}
		a.HandOff(t.Context(), &ownership.ClaimRequest{By: b.self, Refused: []int{p}})
		if got := c.deciders(p); !slices.Equal(got, []string{"a"}) {
			t.Errorf("decided by %v, want a", got)
		}
	})
}

// TestNobodyComesForAPartition: the holder offers a partition and finally lets it go.
func TestNobodyComesForAPartition(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		b.cut.Store(true)
		a.knows(a, b)
		time.Sleep(4 * time.Second)
		if at, moves := a.Figures(); at.Outgoing == 0 || moves.Abandoned != 0 {
			t.Errorf("after 4 s: %+v, %+v", at, moves)
		}
		time.Sleep(2 * time.Second)
		if at, moves := a.Figures(); at.Outgoing != 0 || moves.Abandoned == 0 {
			t.Errorf("after 6 s: %+v, %+v", at, moves)
		}
	})
}

// TestOfferAfterASplit: two nodes own the same partitions, because each was alone. When they meet,
// each offers the other the partitions that the other owns.
func TestOfferAfterASplit(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		b.knows(b)
		c.settle(b)
		c.agree(a, b)
		c.settle(a, b)
		c.checkDeciders(1)
		if _, moves := b.Figures(); moves.Taken == 0 {
			t.Errorf("moves %+v: what a had was not taken over", moves)
		}
	})
}

// TestAnswersOfDifferentMoments asks for the holder of a partition while it moves from one node to
// another. The request reaches the old holder so late that it has given everything away, after the
// new holder has replied that it has nothing yet.
func TestAnswersOfDifferentMoments(t *testing.T) {
	for late := time.Duration(0); late < time.Second; late += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) { answersOfDifferentMoments(t, late) })
	}
}

func answersOfDifferentMoments(t *testing.T, late time.Duration) {
	c := newCluster(t, 3)
	a, b, other := c.nodes[0], c.nodes[1], c.nodes[2]
	c.fill()
	c.delay = func() time.Duration { return 10 * time.Millisecond }
	c.slow.Store(&slow{a.self.Name, late})
	b.knows(a, b, other)
	time.Sleep(200 * time.Millisecond)
	c.slow.Store(nil)
	c.agree(a, other)
	time.Sleep(40 * time.Millisecond)
	c.slow.Store(&slow{a.self.Name, late})
	time.Sleep(260 * time.Millisecond)
	c.agree(a, b, other)
	for range 300 {
		c.checkDeciders(0)
		time.Sleep(10 * time.Millisecond)
	}
	c.settle(a, b, other)
}

// TestALongTakeoverIsNotGivenUp: a node that claims many partitions one after another still gets
// the last one, however long the others take.
func TestALongTakeoverIsNotGivenUp(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.counter.before = func() { time.Sleep(1400 * time.Millisecond) }
		a.leaves = true
		began := time.Now()
		c.agree(a, b)
		c.settle(b)
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("it took %v only", took)
		}
		_, given := a.Figures()
		if _, taken := b.Figures(); given.Abandoned > 0 || taken.Taken != partitions {
			t.Errorf("given %+v, taken %+v", given, taken)
		}
	})
}

// TestALateOfferSaysNothing: a node that offers a partition back has taken it over, unless it sent
// the offer before it was given the partition. Until then the giver keeps the partition.
func TestALateOfferSaysNothing(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.knows(a, b)
		p := a.partition(false)
		page := a.handOff(b.self, p)
		if page.State != ownership.Given || page.Gift == 0 {
			t.Fatalf("%+v", page)
		}
		kept := func() bool { return len(a.counter.keys[p]) > 0 }
		for _, gift := range []uint64{0, page.Gift - 1, page.Gift} {
			a.AcceptOffer(&ownership.OfferRequest{By: b.self,
				Parts: []ownership.OfferPart{{p, gift}}})
			synctest.Wait()
			if kept() != (gift != page.Gift) {
				t.Errorf("handoff %d, offered after %d: kept %v", page.Gift, gift, kept())
			}
		}
	})
}

// TestTakenBackBeforeItBegins takes a partition back after its handoff was promised and before the
// counter begins it.
func TestTakenBackBeforeItBegins(t *testing.T) {
	withTwo(t, func(t *testing.T, c *cluster, a, b *node) {
		a.knows(a, b)
		p := a.partition(false)
		begin := make(chan struct{})
		a.counter.before = func() { <-begin }
		go a.handOff(b.self, p)
		synctest.Wait()
		a.knows(a)
		a.HandOff(t.Context(), &ownership.ClaimRequest{By: b.self, Refused: []int{p}})
		close(begin)
		c.settle(a)
		synctest.Wait()
		if !a.counter.owns(p) {
			t.Errorf("nobody decides about partition %d", p)
		}
	})
}

// TestLocateGivesUp fails after three seconds, or with its context.
func TestLocateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t, 1).nodes[0]
		a.Suspend()
		began := time.Now()
		if _, err := a.Locate(t.Context(), 0); !errors.Is(err, twotier.ErrUnavailable) ||
			time.Since(began) != ownership.WaitTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Locate(ctx, 0); err == nil ||
			time.Since(began) != ownership.WaitTimeout+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
