package rounds

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/shifts"
)

// newDirtyList returns an empty list outside of a partition.
func newDirtyList() *DirtyList {
	return &DirtyList{Shift: shifts.New(1, time.Second, time.Second).All()[0]}
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
			d.Push(r)
			model = append(model, r)
		} else {
			if got := d.Pop(); got != model[0] {
				t.Fatalf("step %d: popped %d, want %d", i, got, model[0])
			}
			model = model[1:]
		}
		if d.IsEmpty() != (len(model) == 0) || len(d.Listed()) != len(model) {
			t.Fatalf("step %d: %d wait, want %d", i, len(d.Listed()), len(model))
		}
		if got := d.LastTicket - d.CutTicket; got != uint64(len(model)) {
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
				d.Push(1)
				time.Sleep(time.Second)
			}
			d.MakeDue()
			d.BeginCut()
			if batch > 0 {
				continue
			}
			if got := d.OldestTime(); !got.Equal(pushed[0]) {
				t.Fatalf("the oldest is from %v, want %v", got, pushed[0])
			}
		}
		for ticket, want := range []time.Time{pushed[0], pushed[0], pushed[0], pushed[0],
			pushed[1]} {
			if d.AckedTicket = uint64(ticket); !d.OldestTime().Equal(want) {
				t.Errorf("with ticket %d acknowledged the oldest is from %v, want %v", ticket,
					d.OldestTime(), want)
			}
		}
		if d.AckedTicket = 9; !d.OldestTime().Equal(pushed[2]) {
			t.Errorf("the oldest is from %v, want %v", d.OldestTime(), pushed[2])
		}
		if d.AckedTicket = 12; !d.OldestTime().IsZero() {
			t.Errorf("the oldest is from %v although all is acknowledged", d.OldestTime())
		}
	})
}

// TestKeysBecomeDueTogether: keys that are pushed once a cut of the due ones has begun are neither
// due with them nor as old.
func TestKeysBecomeDueTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirtyList()
		d.Push(1)
		d.MakeDue()
		d.Push(2)
		var later []time.Time
		for range 2 { // a round with one of the keys each
			if !d.IsDue() {
				t.Error("a key is not due")
			}
			d.BeginCut()
			d.Pop()
			time.Sleep(time.Second)
			d.Push(3)
			later = append(later, time.Now())
		}
		if d.AckedTicket = d.CutTicket; d.IsDue() || !d.OldestTime().Equal(later[0]) {
			t.Errorf("due: %v; the oldest is from %v, want %v", d.IsDue(), d.OldestTime(), later)
		}
		if d.MakeDue(); !d.IsDue() {
			t.Error("no key is due")
		}
		if d.Clear(); d.IsDue() {
			t.Error("nothing is on the list, and due")
		}
	})
}

// TestBatchesThatAreAcknowledgedAreForgotten flushes again and again without asking for the oldest.
func TestBatchesThatAreAcknowledgedAreForgotten(t *testing.T) {
	d := newDirtyList()
	for range 1000 {
		d.Push(1)
		d.MakeDue()
		d.BeginCut()
		d.Pop()
		d.AckedTicket = d.CutTicket
	}
	if n := len(d.batches); n > 2 {
		t.Errorf("%d batches are remembered of which the store has all", n)
	}
}

// TestTicketsThatWereHandedOff hands off two tickets of four, and takes them back.
func TestTicketsThatWereHandedOff(t *testing.T) {
	d := newDirtyList()
	d.LastTicket, d.CutTicket, d.AckedTicket = 4, 4, 2
	d.HandOff(nil)
	d.Clear()
	d.Push(1)
	for ticket, want := range []bool{false, false, false, true, true, false} {
		if got := d.HandedOff(uint64(ticket)); got != want {
			t.Errorf("ticket %d is handed off: %v, want %v", ticket, got, want)
		}
	}
	if d.CancelHandOff(); d.HandedOff(3) {
		t.Error("ticket 3 is handed off and was taken back")
	}
}
