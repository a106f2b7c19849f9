package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
)

// cut is a store that one engine can't reach while gone is set.
type cut struct {
	distinct.Store
	gone atomic.Bool
}

func (s *cut) Compare(ctx context.Context, list []*distinct.Exchange) {
	if !s.gone.Load() {
		s.Store.Compare(ctx, list)
		return
	}
	for _, x := range list {
		x.Err = errStore
	}
}

// apart returns an engine that can be cut off from the store.
func (r *resets) apart() (*distinct.Engine, *cut) {
	r.Helper()
	s := &cut{Store: r.store}
	return engine(r.T, r.c, s, nil, nil, func(o *distinct.Options) {
		o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour
	}), s
}

// doubted resets a key at one engine, which has read it and gets no answer, and passes the reset,
// kept as r.reset, to others. A late request arrives when the returned function is called.
func (r *resets) doubted(f fault, at *distinct.Engine, others ...*distinct.Engine) (arrive func()) {
	r.Helper()
	comes := func() {}
	query(r.T, at, string(oneKey), time.Minute)
	r.c.ms.Add(10)
	r.store.later = func(fn func()) { comes = fn }
	r.store.set(func() fault { return f })
	reset, err := at.Forget(r.Context(), nil, oneKey)
	r.store.set(nil)
	if !errors.Is(err, twotier.ErrUnknownOutcome) {
		r.Fatalf("the reset says %v", err)
	}
	r.reset = reset
	for _, e := range others {
		e.Void(nil, oneKey, reset)
	}
	r.c.ms.Add(10)
	return comes
}

// whatever maps each fault to the number of earlier values that a reset leaves behind. A late reset
// fails once the store has been asked.
var whatever = map[fault]int64{lost: 1, unheard: 0, late: 1}

// TestResetOfUnknownOutcome adds to a key after a reset of unknown outcome, both at the engine that
// reset it and at the one that decides about it.
func TestResetOfUnknownOutcome(t *testing.T) {
	for f, before := range whatever {
		for _, where := range []string{"where it was reset", "elsewhere"} {
			t.Run(fmt.Sprint(f, where), func(t *testing.T) {
				r := newResets(t)
				a, b := r.engine(), r.engine()
				r.flushed(b, 1)
				arrive := r.doubted(f, a, b)
				if where != "elsewhere" {
					b = a
				}
				r.wants(b, before) // at once
				add(t, b, string(oneKey), 2)
				arrive()
				finish(t, b)
				r.wants(b, before+1)
				r.wants(r.engine(), before+1)
			})
		}
	}
}

// TestWhatIsAddedEndsADoubt adds a value to a key with a reset in doubt, and another one at an
// engine that does not know of the reset.
func TestWhatIsAddedEndsADoubt(t *testing.T) {
	for _, inStore := range []bool{false, true} {
		r := newResets(t)
		a, b, c := r.engine(), r.engine(), r.engine()
		r.flushed(b, 1)
		arrive := r.doubted(late, a, b)
		if inStore {
			r.inStore(b, 1, 1) // the store already has it
		} else {
			add(t, b, string(oneKey), 2)
		}
		r.wants(c, 1)
		add(t, c, string(oneKey), 3)
		arrive()
		finish(t, b)
		finish(t, c)
		r.wants(c, map[bool]int64{false: 3, true: 2}[inStore])
	}
}

// TestAnIdleDoubtEnds passes a reset in doubt to an engine that has nothing of the key and gets no
// requests for it. The engine's next flush ends the reset.
func TestAnIdleDoubtEnds(t *testing.T) {
	r := newResets(t)
	a, b, c := r.engine(), r.engine(), r.engine()
	r.flushed(a, 1)
	arrive := r.doubted(late, a, b)
	finish(t, b) // reads the key
	finish(t, b)
	r.wants(c, 1)
	add(t, c, string(oneKey), 2)
	arrive()
	finish(t, c)
	r.wants(c, 2)
	asked := r.store.asked()
	finish(t, b)
	if n := r.store.asked(); n != asked {
		t.Errorf("asked %d times more", n-asked)
	}
}

// TestADoubtIsNoValue passes a reset in doubt to an engine without unflushed changes of the key.
// Nothing has to be handed over, or waited for.
func TestADoubtIsNoValue(t *testing.T) {
	r := newResets(t)
	a := r.engine()
	b, bs := r.apart()
	r.flushed(b, 1)
	r.doubted(lost, a, b)
	bs.gone.Store(true)
	if list := b.ListUnflushed(partitions); len(list) > 0 || b.Stats().Pending > 0 {
		t.Errorf("pending: %+v, %+v", list, b.Stats())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("closed: %v", err)
	}
}

// TestAnOldValueDuringADoubt adds a value that the store has, unless a reset in doubt was made. It
// is not acknowledged as stored, and stays, even if it is handed over twice.
func TestAnOldValueDuringADoubt(t *testing.T) {
	r := newResets(t)
	a := r.engine()
	b, bs := r.apart()
	c, cs := r.apart()
	d, ds := r.apart()
	for _, e := range []*distinct.Engine{b, c, d} {
		r.flushed(e, 1)
	}
	r.doubted(unheard, a, b, c, d)
	for _, s := range []*cut{bs, cs, ds} {
		s.gone.Store(true)
	}
	op := &distinct.Op{Key: oneKey, Hashes: values(b, 1), Ack: twotier.AckStore}
	err := b.Do(t.Context(), op, new(distinct.Result), false)
	if !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("without the store: %v", err)
	}
	r.handOver(b, c)
	r.handOver(c, d)
	ds.gone.Store(false)
	finish(t, d)
	r.wants(r.engine(), 1)
}

// TestValuesAddedDuringADoubt adds values to a key with a reset in doubt, without the store, and
// repeats some earlier ones. All of them are there afterwards, wherever they were handed over to.
func TestValuesAddedDuringADoubt(t *testing.T) {
	for f, before := range whatever {
		for _, to := range []string{"nobody", "one in doubt", "one that knows", "a new one"} {
			t.Run(fmt.Sprint(f, to), func(t *testing.T) {
				r := newResets(t)
				a := r.engine()
				b, bs := r.apart()
				c, cs := r.apart()
				r.flushed(b, 0)
				r.flushed(b, 1)
				told := []*distinct.Engine{b, c}
				if to == "a new one" {
					told = told[:1]
				}
				arrive := r.doubted(f, a, told...)
				bs.gone.Store(true)
				cs.gone.Store(to != "one that knows")
				add(t, b, string(oneKey), 1, 2)
				if to != "nobody" {
					r.handOver(b, c)
					b, bs = c, cs
				}
				add(t, b, string(oneKey), 3)
				query(t, a, string(oneKey), time.Minute) // asks the store
				arrive()
				bs.gone.Store(false)
				finish(t, b)
				r.wants(b, 3+before)
				r.wants(r.engine(), 3+before)
			})
		}
	}
}

func (r *resets) handOver(from, to *distinct.Engine) {
	r.Helper()
	left := from.HandOver(func(int) int { return 0 }, func(_ int, list []distinct.Pending) error {
		if to.Import(list) > 0 {
			return errStore
		}
		return nil
	})
	if left > 0 {
		r.Errorf("%d keys are left", left)
	}
}

// TestSeveralDoubts resets a key twice, with a value before, between and after. The store has made
// the first reset, or the second, or both, or none.
func TestSeveralDoubts(t *testing.T) {
	for _, c := range []struct {
		first, second fault
		want          int64
	}{{lost, lost, 3}, {unheard, lost, 2}, {lost, unheard, 1}, {unheard, unheard, 1}} {
		r := newResets(t)
		a := r.engine()
		b, bs := r.apart()
		r.flushed(b, 1)
		bs.gone.Store(true)
		r.doubted(c.first, a, b)
		add(t, b, string(oneKey), 2)
		r.doubted(c.second, a, b)
		add(t, b, string(oneKey), 3)
		bs.gone.Store(false)
		finish(t, b)
		r.wants(b, c.want)
		r.wants(r.engine(), c.want)
	}
}

// TestAResetAfterADoubt makes a successful reset after one in doubt: the values added between are
// gone.
func TestAResetAfterADoubt(t *testing.T) {
	for f := range whatever {
		r := newResets(t)
		a := r.engine()
		b, bs := r.apart()
		r.flushed(b, 1)
		bs.gone.Store(true)
		arrive := r.doubted(f, a, b)
		add(t, b, string(oneKey), 2)
		r.told(a, b)
		add(t, b, string(oneKey), 3)
		arrive()
		bs.gone.Store(false)
		finish(t, b)
		r.wants(b, 1)
		r.wants(r.engine(), 1)
	}
}

// TestADoubtOlderThanAReset passes a reset in doubt, which a later one has overtaken, to engines
// that know neither and can't ask the store. What is added there and handed over is younger than
// both.
func TestADoubtOlderThanAReset(t *testing.T) {
	for f := range whatever {
		r := newResets(t)
		a := r.engine()
		b, bs := r.apart()
		c, cs := r.apart()
		r.flushed(a, 1)
		arrive := r.doubted(f, a)
		doubt := r.reset
		r.told(a)
		arrive()
		r.c.ms.Add(10)
		bs.gone.Store(true)
		cs.gone.Store(true)
		for _, e := range []*distinct.Engine{b, c} {
			e.Void(nil, oneKey, doubt)
		}
		add(t, b, string(oneKey), 2)
		r.handOver(b, c)
		add(t, c, string(oneKey), 3)
		cs.gone.Store(false)
		finish(t, c)
		r.wants(c, 2)
		r.wants(r.engine(), 2)
	}
}

// TestADoubtDuringAnExchange passes a reset in doubt to an engine that waits for the store, whose
// reply predates the reset. The reply does not resolve the doubt.
func TestADoubtDuringAnExchange(t *testing.T) {
	r := newResets(t)
	a, slow := r.engine(), &meanwhile{Store: r.store}
	b := engine(t, r.c, slow, nil, nil, func(o *distinct.Options) {
		o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour
	})
	add(t, b, string(oneKey), 1)
	arrive := func() {}
	slow.after = func() { arrive = r.doubted(late, a, b) }
	finish(t, b)
	add(t, b, string(oneKey), 2)
	arrive()
	finish(t, b)
	r.wants(b, 2)
	r.wants(r.engine(), 2)
}

// TestDoubtsAreBounded passes many resets in doubt to an engine without the store, and adds values
// between them. Values younger than all resets stay.
func TestDoubtsAreBounded(t *testing.T) {
	r := newResets(t)
	a := r.engine()
	b, bs := r.apart()
	plain, ps := r.apart()
	r.flushed(b, 1)
	bs.gone.Store(true)
	ps.gone.Store(true)
	for i := range 100 {
		r.doubted(lost, a, b)
		add(t, b, string(oneKey), 10+i)
		add(t, plain, string(oneKey), 10+i)
	}
	if n, most := b.Stats().Bytes, 9*plain.Stats().Bytes; n > most {
		t.Errorf("%d bytes, want at most %d", n, most)
	}
	r.doubted(unheard, a, b)
	add(t, b, string(oneKey), 200)
	bs.gone.Store(false)
	finish(t, b)
	r.wants(b, 1)
	r.wants(r.engine(), 1)
}
