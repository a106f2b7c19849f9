package multiowner

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
)

// id returns the ID of an acquire of a coordinator.
func id(number uint64) rpc.AcquireID { return rpc.AcquireID{Coordinator: "c", Number: number} }

// decide decides an acquire.
func (o *outcomes) decide(number, settled uint64, counted bool) error {
	d, err := o.beginDecision(id(number), settled, time.Now())
	if err == nil {
		o.endDecision(d, counted, time.Now())
	}
	return err
}

// TestOutcomes asks about acquires in each state.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outcomes{records: map[string]*record{}}
		is := func(number uint64, want Outcome) {
			t.Helper()
			if got, err := o.find(id(number), time.Now()); got != want || err != nil {
				t.Errorf("%d: %v, %v, want %v", number, got, err, want)
			}
		}
		decided := func(number, settled uint64, counted bool, want error) {
			t.Helper()
			if err := o.decide(number, settled, counted); !errors.Is(err, want) {
				t.Errorf("%d: %v, want %v", number, err, want)
			}
		}
		decided(1, 1, true, nil)
		decided(2, 1, false, nil)
		is(1, CarriedOut)
		is(2, NotCarriedOut)
		d, err := o.beginDecision(id(3), 0, time.Now())
		must.Succeed(t, err)
		is(3, Undecided)
		o.endDecision(d, true, time.Now())
		is(3, CarriedOut)
		is(4, NotCarriedOut) // it has never arrived
		decided(4, 1, true, twotier.ErrNotOwner)
		is(4, NotCarriedOut)
		decided(5, 4, true, nil) // 1 to 3 are settled
		is(5, CarriedOut)
		if n := o.size; n != 2 { // 4 and 5
			t.Errorf("%d outcomes are remembered, want 2", n)
		}
		is(1, Forgotten)
		is(2, Forgotten)
		decided(2, 4, true, twotier.ErrNotOwner)
	})
}

// TestOutcomesOfSilentCoordinators are forgotten after a while. After that, no answer reports a
// carried out acquire as not carried out.
func TestOutcomesOfSilentCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outcomes{records: map[string]*record{}}
		for number := range uint64(3) {
			must.Succeed(t, o.decide(number+1, 1, true))
		}
		time.Sleep(outcomeTime - time.Minute)
		if got, _ := o.find(id(9), time.Now()); got != NotCarriedOut {
			t.Errorf("9: %v", got)
		}
		time.Sleep(time.Minute)
		o.expire(time.Now())
		if got, _ := o.find(id(2), time.Now()); got != CarriedOut || o.size != 4 {
			t.Errorf("at the last moment: %v, %d outcomes", got, o.size)
		}
		time.Sleep(time.Second)
		o.expire(time.Now())
		if got, _ := o.find(id(2), time.Now()); got != Forgotten || o.size != 1 {
			t.Errorf("afterwards: %v, %d outcomes", got, o.size)
		}
		if err := o.decide(9, 1, true); !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("9 is decided after it was given up: %v", err)
		}
		time.Sleep(refusedTime)
		o.expire(time.Now())
		if o.size != 0 || len(o.records) != 1 {
			t.Errorf("%d outcomes, %d records", o.size, len(o.records))
		}
		time.Sleep(2 * time.Hour)
		o.expire(time.Now())
		if len(o.records) != 0 {
			t.Errorf("%d records of a coordinator that is gone", len(o.records))
		}
	})
}

// TestOutcomesAreBounded decides more acquires than can be remembered, while one is unsettled:
// acquires beyond the bound are not decided, and questions about further ones are not answered.
func TestOutcomesAreBounded(t *testing.T) {
	const room = 100
	o := &outcomes{records: map[string]*record{}}
	o.size = maxOutcomes - room // of other coordinators
	for number := range uint64(room) {
		must.Succeed(t, o.decide(number+1, 1, true))
	}
	if err := o.decide(room+1, 1, true); !errors.Is(err, twotier.ErrOverload) {
		t.Errorf("one more: %v", err)
	}
	if _, err := o.find(id(room+1), time.Now()); !errors.Is(err, twotier.ErrOverload) {
		t.Errorf("asked for one more: %v", err)
	}
	if err := o.decide(room+1, room-9, true); err != nil ||
		o.size != maxOutcomes-room+11 {
		t.Errorf("once most are settled: %v, %d are remembered", err, o.size)
	}
}

// TestNumbers settles numbers out of order: the settled numbers that next reports are a prefix.
func TestNumbers(t *testing.T) {
	n := &numbers{open: map[string][]numbered{}}
	var got []uint64
	take := func() {
		number, settled := n.next("d")
		got = append(got, number, settled)
	}
	take()
	take()
	take()
	n.settle("d", 2)
	take()
	n.settle("d", 1)
	take()
	n.settle("d", 5)
	n.settle("d", 3)
	n.settle("d", 4)
	take()
	// An acquire with another decider holds nothing back.
	other, settled := n.next("e")
	got = append(got, other, settled)
	n.settle("d", 6)
	take()
	n.settle("d", 8)
	n.settle("e", 7)
	if len(n.open) != 0 {
		t.Errorf("numbers with %d deciders are remembered, although all are settled", len(n.open))
	}
	if want := []uint64{1, 1, 2, 1, 3, 1, 4, 1, 5, 3, 6, 6, 7, 7, 8, 8}; !slices.Equal(got, want) {
		t.Errorf("numbers and what is settled: %v, want %v", got, want)
	}
}

// BenchmarkOutcomes decides for a coordinator that settles soon, as in ordinary operation.
func BenchmarkOutcomes(b *testing.B) {
	b.ReportAllocs()
	o, number := &outcomes{records: map[string]*record{}}, uint64(0)
	for b.Loop() {
		number++
		must.Succeed(b, o.decide(number, number-min(number, 64), true))
	}
	b.ReportMetric(float64(o.size), "kept")
}
