package distinct_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
)

// resets holds engines over one store, which they ask only when they have to, and acts on their one
// key. Time passes with each step.
type resets struct {
	*testing.T
	c     *clock
	store *memory
}

func newResets(t *testing.T) *resets { return &resets{T: t, c: newClock(), store: newMemory()} }

func (r *resets) engine() *distinct.Engine { return r.decider(nil) }

func (r *resets) decider(owner distinct.Owner) *distinct.Engine {
	r.Helper()
	return engine(r.T, r.c, r.store, owner,
		func(context.Context, []int) []distinct.Pending { return nil },
		func(o *distinct.Options) { o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour })
}

var oneKey = []byte("k")

func (r *resets) forget(e *distinct.Engine) {
	r.Helper()
	r.c.ms.Add(10)
	if _, err := e.Forget(r.Context(), nil, oneKey); err != nil {
		r.Fatal(err)
	}
	r.c.ms.Add(10)
}

// flushed adds a value and waits for the store.
func (r *resets) flushed(e *distinct.Engine, value int) {
	r.Helper()
	do(r.T, e, &distinct.Op{Key: oneKey, Hashes: values(e, value), Ack: twotier.AckStore})
}

func (r *resets) wants(e *distinct.Engine, n int64) {
	r.Helper()
	if got := query(r.T, e, string(oneKey), time.Minute).Count; got != n {
		r.Errorf("%d values, want %d", got, n)
	}
}

// inStore adds values in the store and counts.
func (r *resets) inStore(e *distinct.Engine, n int64, added ...int) {
	r.Helper()
	var res distinct.Result
	op := &distinct.Op{Key: oneKey, Hashes: values(e, added...), Windows: []int64{60_000}}
	must.Succeed(r, e.DoInStore(r.Context(), op, &res))
	if res.Counts[0].Count != n {
		r.Errorf("%d values in the store, want %d", res.Counts[0].Count, n)
	}
}

// TestResetByAClockThatIsBehind resets a key after an earlier reset by a clock that is ahead, or
// within the same millisecond. Values added afterwards stay.
func TestResetByAClockThatIsBehind(t *testing.T) {
	r := newResets(t)
	ahead := &resets{T: t, c: newClock(), store: r.store}
	ahead.c.ms.Add(50)
	a, b := ahead.engine(), r.engine()
	ahead.flushed(a, 1)
	ahead.forget(a)
	r.wants(b, 0)
	r.forget(b)
	r.flushed(b, 2)
	r.wants(b, 1)
	for range 20 {
		if _, err := b.Forget(t.Context(), nil, oneKey); err != nil {
			t.Fatal(err)
		}
	}
	r.flushed(b, 3)
	r.wants(b, 1)
	r.wants(a, 1)
}

// TestResetOfNothing resets a key that the store does not have. That voids unflushed values on
// other engines, and no value that is added later, on any engine.
func TestResetOfNothing(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.forget(a)
	r.inStore(b, 1, 1)
	r.inStore(a, 1)
	r.inStore(a, 2, 2)
	r.inStore(b, 2)
	r.inStore(r.engine(), 2)

	r = newResets(t)
	a, b = r.engine(), r.engine()
	add(t, b, string(oneKey), 1)
	r.forget(a)
	finish(t, b)
	for _, e := range []*distinct.Engine{a, b, r.engine()} {
		r.wants(e, 0)
	}
}

// TestResetBetweenWhatComesTogether imports values older than a reset into an engine that does not
// know of the reset, before or after that engine adds to the key itself.
func TestResetBetweenWhatComesTogether(t *testing.T) {
	for _, importFirst := range []bool{true, false} {
		r := newResets(t)
		first, old := r.engine(), r.engine()
		r.flushed(first, 0)
		add(t, old, string(oneKey), 1)
		r.forget(first)
		now := r.engine()
		if importFirst {
			now.Import(old.ListUnflushed(partitions))
			r.flushed(now, 2)
		} else {
			add(t, now, string(oneKey), 2)
			now.Import(old.ListUnflushed(partitions))
			finish(t, now)
		}
		r.wants(now, 1)
	}
}

// TestLossAfterAReset makes the store lose a value added by another engine since a reset, and adds
// that value again on an engine that still has it.
func TestLossAfterAReset(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.flushed(a, 1)
	r.forget(a)
	r.flushed(b, 2)
	r.wants(a, 1)
	r.store.restore(map[string]*stored{})
	r.inStore(a, 1)
	r.flushed(a, 2)
	r.wants(r.engine(), 1)
}

// turns is an owner with terms set by the test.
type turns struct{ term int64 }

func (o *turns) Term(int) (int64, bool) { return o.term, o.term > 0 }

// TestResetWhileAnotherDecided resets a key during the term of another engine. The engine that
// decides before and after then adds to the key without reading it.
func TestResetWhileAnotherDecided(t *testing.T) {
	r, o := newResets(t), &turns{1}
	a, b := r.engine(), r.decider(o)
	r.flushed(b, 1)
	o.term = 0
	r.forget(a)
	o.term = 2
	r.flushed(b, 2)
	r.wants(b, 1)
}

// TestResetBeforeTheFirstValue resets a key elsewhere after it could not be read here, and before
// any value was added here.
func TestResetBeforeTheFirstValue(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.flushed(a, 1)
	r.store.set(func() fault { return lost })
	asked := r.store.asked()
	query(t, b, string(oneKey), time.Minute)
	eventually(t, "it is tried again for the next ones", func() bool {
		return r.store.asked() == asked+2
	})
	r.store.set(nil)
	r.forget(a)
	add(t, b, string(oneKey), 2)
	finish(t, b)
	r.wants(b, 1)
}

// TestResetThatTheStoreLost makes the store lose a reset that one engine remembers. Another engine
// adds to the key afterwards.
func TestResetThatTheStoreLost(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.flushed(a, 1)
	r.forget(a)
	r.store.restore(map[string]*stored{})
	r.flushed(b, 2)
	r.flushed(a, 3)
	finish(t, b)
	r.inStore(b, 2)
	finish(t, b)
	r.wants(r.engine(), 2)
}

// TestResetBeforeWhatTheStoreAcknowledges adds values, in place of the owner, to keys that were
// reset elsewhere since they were read here. Acknowledged values are in the store.
func TestResetBeforeWhatTheStoreAcknowledges(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.decider(&turns{0})
	r.flushed(a, 1)
	inPlace := func(value int) {
		t.Helper()
		var res distinct.Result
		op := &distinct.Op{Key: oneKey, Hashes: values(b, value), Ack: twotier.AckStore}
		must.Succeed(t, b.Do(t.Context(), op, &res, true))
	}
	inPlace(2)
	r.forget(a)
	inPlace(3)
	r.wants(r.engine(), 1)
}

// told resets a key at one engine and passes the reset to another.
func (r *resets) told(at *distinct.Engine, others ...*distinct.Engine) {
	r.Helper()
	r.c.ms.Add(10)
	reset, err := at.Forget(r.Context(), nil, oneKey)
	must.Succeed(r, err)
	for _, e := range others {
		e.Void(nil, oneKey, reset)
	}
	r.c.ms.Add(10)
}

// TestVoidWithoutTheStore passes a reset to an engine before the store fails and comes back as it
// was before the reset. Void values stay void, and values added since stay, even if they were added
// by a clock that is behind.
func TestVoidWithoutTheStore(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.flushed(a, 1)
	r.wants(b, 1)
	before := r.store.snapshot()
	r.told(a, b)
	r.store.set(func() fault { return lost })
	r.wants(b, 0)
	r.c.ms.Add(-1000)
	add(t, b, string(oneKey), 2)
	r.c.ms.Add(1000)
	r.store.restore(before)
	r.store.set(nil)
	finish(t, b)
	r.wants(b, 1)
	r.wants(r.engine(), 1)
}

// TestVoidOfWhatIsYounger passes to an engine, late, a reset that is older than all of its values.
func TestVoidOfWhatIsYounger(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	reset, err := a.Forget(t.Context(), nil, oneKey)
	must.Succeed(t, err)
	r.c.ms.Add(10)
	add(t, b, string(oneKey), 1)
	for range 2 {
		b.Void(nil, oneKey, reset)
		r.wants(b, 1)
	}
	r.flushed(b, 2)
	b.Void(nil, oneKey, reset)
	r.wants(b, 2)
	r.wants(r.engine(), 2)
}

// TestReadAnewAfterAReset makes others add to a key after a reset that an engine has learned of,
// and after one that it has not learned of.
func TestReadAnewAfterAReset(t *testing.T) {
	r := newResets(t)
	a, b := r.engine(), r.engine()
	r.flushed(a, 1)
	r.wants(b, 1)
	r.told(a, b)
	r.flushed(a, 2)
	r.wants(b, 1)

	r.told(a, b)
	reset, err := a.Forget(t.Context(), nil, oneKey)
	must.Succeed(t, err)
	r.c.ms.Add(10)
	add(t, b, string(oneKey), 3)
	b.Void(nil, oneKey, reset)
	r.wants(b, 1)
}

// TestVoidDuringAnExchangeThatIsLost passes a reset to an engine that waits for the store, which
// then loses the reset: void values stay void.
func TestVoidDuringAnExchangeThatIsLost(t *testing.T) {
	r := newResets(t)
	a, slow := r.engine(), &meanwhile{Store: r.store}
	b := engine(t, r.c, slow, nil, nil, func(o *distinct.Options) {
		o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour
	})
	add(t, b, string(oneKey), 1)
	slow.after = func() {
		written := r.store.snapshot()
		r.told(a, b)
		r.store.restore(written)
	}
	finish(t, b)
	r.wants(b, 0)
	r.c.ms.Add(5000) // it is in another bucket
	add(t, b, string(oneKey), 2)
	finish(t, b)
	r.wants(r.engine(), 1)
}

// TestVoidDuringAnExchange passes a reset to an engine that waits for the store, whose reply
// describes the key before or after the reset. A value that was added in memory before is void. A
// value that is added in the store comes after the reset.
func TestVoidDuringAnExchange(t *testing.T) {
	for _, inStore := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			r := newResets(t)
			a, slow := r.engine(), &meanwhile{Store: r.store}
			b := engine(t, r.c, slow, nil, nil, func(o *distinct.Options) {
				o.FlushInterval, o.VerifyInterval = time.Hour, time.Hour
			})
			r.flushed(b, 1)
			reset := func() { r.told(a, b) }
			if before {
				slow.before = reset
			} else {
				slow.after = reset
			}
			var res distinct.Result
			op := &distinct.Op{Key: oneKey, Hashes: values(b, 2), Ack: twotier.AckStore}
			do := b.DoInStore
			if !inStore {
				do = func(ctx context.Context, op *distinct.Op, res *distinct.Result) error {
					return b.Do(ctx, op, res, false)
				}
			}
			must.Succeed(t, do(t.Context(), op, &res))
			left := int64(0)
			if inStore {
				left = 1
			}
			r.wants(r.engine(), left)
			r.wants(b, left)
		}
	}
}

// meanwhile is a store that calls before and after around its next exchange.
type meanwhile struct {
	distinct.Store
	before, after func()
}

func (s *meanwhile) Compare(ctx context.Context, list []*distinct.Exchange) {
	before, after := s.before, s.after
	s.before, s.after = nil, nil
	if before != nil {
		before()
	}
	s.Store.Compare(ctx, list)
	if after != nil {
		after()
	}
}

// TestResetOfUnknownOutcome resets a key without an answer from the store: the request was lost,
// the reply was, or the request arrives later. Values added before are void for all who are told,
// and in the store once there is an answer; values added since stay.
func TestResetOfUnknownOutcome(t *testing.T) {
	for _, f := range []fault{lost, unheard, late} {
		r := newResets(t)
		a, b := r.engine(), r.engine()
		r.flushed(a, 1)
		r.wants(b, 1)
		arrive := func() {}
		r.store.later = func(fn func()) { arrive = fn }
		r.store.set(func() fault { return f })
		r.c.ms.Add(10)
		until, err := a.Forget(t.Context(), nil, oneKey)
		if !errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Fatalf("the reset says %v", err)
		}
		b.Void(nil, oneKey, until)
		add(t, b, string(oneKey), 2) // within the same millisecond
		r.store.set(nil)
		for range 2 {
			r.wants(b, 1)
			finish(t, a)
			finish(t, b)
			r.inStore(a, 1)
			r.wants(r.engine(), 1)
			arrive()
		}
	}
}
