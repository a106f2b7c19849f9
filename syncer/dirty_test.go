package syncer

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// newDirtyList returns an empty list outside of a partition.
func newDirtyList() *dirtyList {
	return &dirtyList{shift: newShifts(nil, time.Second, time.Second).list[0]}
}

// TestDirtyListAgainstASlice pushes and pops at random.
func TestDirtyListAgainstASlice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	d := newDirtyList()
	var model []arena.Ref
	for i := range 20_000 {
		if r := arena.Ref(i + 1); len(model) == 0 || rnd.IntN(100) < 52-i/400 {
			d.push(r)
			model = append(model, r)
		} else {
			if got := d.pop(); got != model[0] {
				t.Fatalf("step %d: popped %d, want %d", i, got, model[0])
			}
			model = model[1:]
		}
		if d.isEmpty() != (len(model) == 0) || len(d.waiting()) != len(model) {
			t.Fatalf("step %d: %d wait, want %d", i, len(d.waiting()), len(model))
		}
		if got := d.lastTicket - d.cutTicket; got != uint64(len(model)) {
			t.Fatalf("step %d: %d tickets are not cut, want %d", i, got, len(model))
		}
	}
}

// TestOldestIsThatOfTheFirstBatchNotAcknowledged pushes before and after two cuts.
func TestOldestIsThatOfTheFirstBatchNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirtyList()
		var pushed []time.Time
		for batch := range 3 {
			pushed = append(pushed, time.Now())
			for range 4 {
				d.push(1)
				time.Sleep(time.Second)
			}
			d.due = true
			d.beginCut()
			if batch > 0 {
				continue
			}
			if got := d.oldest(); !got.Equal(pushed[0]) {
				t.Fatalf("the oldest is from %v, want %v", got, pushed[0])
			}
		}
		for ticket, want := range []time.Time{pushed[0], pushed[0], pushed[0], pushed[0],
			pushed[1]} {
			if d.ackedTicket = uint64(ticket); !d.oldest().Equal(want) {
				t.Errorf("with ticket %d acknowledged the oldest is from %v, want %v", ticket,
					d.oldest(), want)
			}
		}
		if d.ackedTicket = 9; !d.oldest().Equal(pushed[2]) {
			t.Errorf("the oldest is from %v, want %v", d.oldest(), pushed[2])
		}
		if d.ackedTicket = 12; !d.oldest().IsZero() {
			t.Errorf("the oldest is from %v although all is acknowledged", d.oldest())
		}
	})
}

// TestBatchesThatAreAcknowledgedAreForgotten flushes again and again without asking for the oldest.
func TestBatchesThatAreAcknowledgedAreForgotten(t *testing.T) {
	d := newDirtyList()
	for range 1000 {
		d.push(1)
		d.due = true
		d.beginCut()
		d.pop()
		d.ackedTicket = d.cutTicket
	}
	if n := len(d.batches); n > 2 {
		t.Errorf("%d batches are remembered of which the store has all", n)
	}
}

// TestTicketsThatWereHandedOff hands off two tickets of four, and takes them back.
func TestTicketsThatWereHandedOff(t *testing.T) {
	d := newDirtyList()
	d.lastTicket, d.cutTicket, d.ackedTicket = 4, 4, 2
	d.handOff(nil)
	d.clear()
	d.push(1)
	for ticket, want := range []bool{false, false, false, true, true, false} {
		if got := d.handedOff(uint64(ticket)); got != want {
			t.Errorf("ticket %d is handed off: %v, want %v", ticket, got, want)
		}
	}
	if d.takeBack(); d.handedOff(3) {
		t.Error("ticket 3 is handed off and was taken back")
	}
}
