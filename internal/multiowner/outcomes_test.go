package multiowner_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/testing/must"
)

// TestOutcomes asks about acquires in each state.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(multiowner.Outcomes)
		is := func(number uint64, want multiowner.Outcome) {
			t.Helper()
			if got, err := o.Find(number); got != want || err != nil {
				t.Errorf("%d: %v, %v, want %v", number, got, err, want)
			}
		}
		decided := func(number, settled uint64, counted bool, want error) {
			t.Helper()
			if err := o.Decide(number, settled, counted); !errors.Is(err, want) {
				t.Errorf("%d: %v, want %v", number, err, want)
			}
		}
		decided(1, 1, true, nil)
		decided(2, 1, false, nil)
		is(1, multiowner.CarriedOut)
		is(2, multiowner.NotCarriedOut)
		end, err := o.Begin(3)
		must.Succeed(t, err)
		is(3, multiowner.Undecided)
		end(true)
		is(3, multiowner.CarriedOut)
		is(4, multiowner.NotCarriedOut) // it has never arrived
		decided(4, 1, true, twotier.ErrNotOwner)
		is(4, multiowner.NotCarriedOut)
		decided(5, 4, true, nil) // 1 to 3 are settled
		is(5, multiowner.CarriedOut)
		if n := o.Len(); n != 2 { // 4 and 5
			t.Errorf("%d outcomes are remembered, want 2", n)
		}
		is(1, multiowner.Forgotten)
		is(2, multiowner.Forgotten)
		decided(2, 4, true, twotier.ErrNotOwner)
	})
}

// TestOutcomesOfSilentCoordinators are forgotten after a while. After that, no answer reports a
// carried out acquire as not carried out.
func TestOutcomesOfSilentCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := new(multiowner.Outcomes)
		for number := range uint64(3) {
			must.Succeed(t, o.Decide(number+1, 1, true))
		}
		time.Sleep(multiowner.OutcomeTime - time.Minute)
		if got, _ := o.Find(9); got != multiowner.NotCarriedOut {
			t.Errorf("9: %v", got)
		}
		time.Sleep(time.Minute)
		o.Age()
		if got, _ := o.Find(2); got != multiowner.CarriedOut || o.Len() != 4 {
			t.Errorf("at the last moment: %v, %d outcomes", got, o.Len())
		}
		time.Sleep(time.Second)
		o.Age()
		if got, _ := o.Find(2); got != multiowner.Forgotten || o.Len() != 1 {
			t.Errorf("afterwards: %v, %d outcomes", got, o.Len())
		}
		if err := o.Decide(9, 1, true); !errors.Is(err, twotier.ErrNotOwner) {
			t.Errorf("9 is decided after it was given up: %v", err)
		}
		time.Sleep(multiowner.RefusedTime)
		o.Age()
		if o.Len() != 0 || o.Records() != 1 {
			t.Errorf("%d outcomes, %d records", o.Len(), o.Records())
		}
		time.Sleep(2 * time.Hour)
		o.Age()
		if o.Records() != 0 {
			t.Errorf("%d records of a coordinator that is gone", o.Records())
		}
	})
}

// TestOutcomesAreBounded decides more acquires than can be remembered, while one is unsettled:
// acquires beyond the bound are not decided, and questions about further ones are not answered.
func TestOutcomesAreBounded(t *testing.T) {
	const room = 100
	o := new(multiowner.Outcomes)
	o.Fill(multiowner.MaxOutcomes - room)
	for number := range uint64(room) {
		must.Succeed(t, o.Decide(number+1, 1, true))
	}
	if err := o.Decide(room+1, 1, true); !errors.Is(err, twotier.ErrOverload) {
		t.Errorf("one more: %v", err)
	}
	if _, err := o.Find(room + 1); !errors.Is(err, twotier.ErrOverload) {
		t.Errorf("asked for one more: %v", err)
	}
	if err := o.Decide(room+1, room-9, true); err != nil ||
		o.Len() != multiowner.MaxOutcomes-room+11 {
		t.Errorf("once most are settled: %v, %d are remembered", err, o.Len())
	}
}

// TestNumbers settles numbers out of order: the settled numbers that next reports are a prefix.
func TestNumbers(t *testing.T) {
	n := new(multiowner.Numbers)
	var got []uint64
	take := func() {
		number, settled := n.Next("d")
		got = append(got, number, settled)
	}
	take()
	take()
	take()
	n.Settle("d", 2)
	take()
	n.Settle("d", 1)
	take()
	n.Settle("d", 5)
	n.Settle("d", 3)
	n.Settle("d", 4)
	take()
	// An acquire with another decider holds nothing back.
	other, settled := n.Next("e")
	got = append(got, other, settled)
	n.Settle("d", 6)
	take()
	n.Settle("d", 8)
	n.Settle("e", 7)
	if n.Open() != 0 {
		t.Errorf("numbers with %d deciders are remembered, although all are settled", n.Open())
	}
	if want := []uint64{1, 1, 2, 1, 3, 1, 4, 1, 5, 3, 6, 6, 7, 7, 8, 8}; !slices.Equal(got, want) {
		t.Errorf("numbers and what is settled: %v, want %v", got, want)
	}
}

// BenchmarkOutcomes decides for a coordinator that settles soon, as in ordinary operation.
func BenchmarkOutcomes(b *testing.B) {
	b.ReportAllocs()
	o, number := new(multiowner.Outcomes), uint64(0)
	for b.Loop() {
		number++
		must.Succeed(b, o.Decide(number, number-min(number, 64), true))
	}
	b.ReportMetric(float64(o.Len()), "kept")
}
