package simtest

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/ring"
)

// inherited returns a key of one process that another owns once the first has left.
func (w *world) inherited(from, to *proc) string {
	t := from.ring.Table()
	var rest []ring.Member
	for i := range t.Len() {
		if i != t.Self() {
			rest = append(rest, *t.Member(i))
		}
	}
	after, err := ring.NewTable(rest, to.ring.Name(), w.plan.partitions, 5)
	must.Succeed(w.t, err)
	for _, key := range w.keysOf(from, "a", 100) {
		if after.OwnedBySelf(w.partition(key)) {
			return key
		}
	}
	w.t.Fatal("it inherits nothing")
	return ""
}

// TestAGroupIsWholeWhenItsDeciderLeaves acquires keys of two nodes and waits for the store, which
// the coordinator can't reach. Meanwhile the coordinator leaves: it hands its part over, and no
// node can ask it for the outcome any more.
func TestAGroupIsWholeWhenItsDeciderLeaves(t *testing.T) {
	for name, asked := range map[string]int{"asked itself": 0, "asked by another": 2} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, w *world) {
				a, b := w.alive()[0], w.alive()[1]
				ask := w.alive()[asked]
				keys := []string{w.inherited(a, w.alive()[2]), w.keysOf(b, "b", 1)[0]}
				for _, key := range keys {
					// Without the store an acquire of a cold key would be refused.
					if _, err := ask.do(adding(key), 2*time.Second); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				op := acquiring(2, keys...)
				op.Ack = twotier.AckStore
				a.store.SetDown(true)
				told := make(chan error, 1)
				go func() {
					_, err := ask.do(op, 2*time.Second)
					told <- err
				}()
				time.Sleep(50 * time.Millisecond)
				w.net.Slow(b.ip, a.ip, 700*time.Millisecond) // its question arrives too late
				if err := a.leave(); err != nil {
					t.Error(err)
				}
				err := <-told
				w.net.Heal()
				time.Sleep(20 * time.Second)
				counts := fmt.Sprint(w.stored(keys[0]), w.stored(keys[1]))
				if counts != "1 1" && counts != "2 2" || err == nil && counts == "1 1" {
					t.Errorf("Redis has %s of what is all or nothing, the client was told %v",
						counts, err)
				}
			})
		})
	}
}

// TestAGroupIsWholeWhenItsHolderLeaves acquires keys of two nodes. The decider waits for the store,
// which it can't reach, for longer than the preparation of a handoff may take. Meanwhile the other
// node leaves, which can't hand over its reservation.
func TestAGroupIsWholeWhenItsHolderLeaves(t *testing.T) {
	inCalm(t, func(t *testing.T, w *world) {
		holder, decider, ask := w.alive()[0], w.alive()[1], w.alive()[2]
		keys := []string{w.inherited(holder, ask), w.keysOf(decider, "b", 1)[0]}
		for _, key := range keys {
			// Without the store an acquire of a cold key would be refused.
			if _, err := ask.do(adding(key), 2*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		op := acquiring(2, keys...)
		op.Ack = twotier.AckStore
		decider.store.SetDown(true)
		told := make(chan error, 1)
		go func() {
			_, err := ask.do(op, 5*time.Second)
			told <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if err := holder.leave(); err != nil {
			t.Error(err)
		}
		err := <-told
		decider.store.SetDown(false)
		time.Sleep(20 * time.Second)
		counts := fmt.Sprint(w.stored(keys[0]), w.stored(keys[1]))
		if counts != "2 2" {
			t.Errorf("Redis has %s of what is all or nothing, the client was told %v", counts, err)
		}
	})
}
