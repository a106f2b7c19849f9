package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

func add(t *testing.T, e *distinct.Engine, key string, names ...int) distinct.Result {
	t.Helper()
	return do(t, e, &distinct.Op{Key: []byte(key), Hashes: values(e, names...)})
}

// TestWindows counts values in windows of all levels as time goes by.
func TestWindows(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]distinct.Store{"memory": nil, "two tiers": newMemory()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			e := engine(t, c, store, nil, nil, nil)
			add(t, e, "k", 1, 2, 2, 3)
			c.ms.Add(30_000)
			add(t, e, "k", 3, 4)
			for _, test := range []struct {
				later  time.Duration
				window time.Duration
				want   int64
			}{
				{0, time.Minute, 4}, {0, 10 * time.Second, 2}, {0, 24 * time.Hour, 4},
				{40 * time.Second, time.Minute, 2}, {40 * time.Second, 2 * time.Minute, 4},
				{2 * time.Hour, time.Hour, 0}, {2 * time.Hour, 4 * time.Hour, 4},
				{30 * time.Hour, 24 * time.Hour, 0},
			} {
				c.ms.Store(start + 30_000 + test.later.Milliseconds())
				got := query(t, e, "k", test.window)
				if got.Count != test.want || got.Error != 0 {
					t.Errorf("%v later, the last %v: %d with an error of %v, want %d", test.later,
						test.window, got.Count, got.Error, test.want)
				}
			}
		})
	}
}

// TestLateValues adds values in the past, and asks for windows that ended there.
func TestLateValues(t *testing.T) {
	t.Parallel()
	c := newClock()
	e := engine(t, c, nil, nil, nil, nil)
	hour := time.Hour.Milliseconds()
	late := distinct.Op{Key: []byte("k"), TS: start - 2*hour, Hashes: values(e, 1, 2)}
	do(t, e, &late)
	add(t, e, "k", 2, 3)
	if n := query(t, e, "k", time.Hour).Count; n != 2 {
		t.Errorf("the last hour: %d, want 2", n)
	}
	if n := query(t, e, "k", 5*time.Hour).Count; n != 3 {
		t.Errorf("the last five hours: %d, want 3", n)
	}
	res := do(t, e, &distinct.Op{Key: []byte("k"), TS: start - hour, Windows: []int64{2 * hour}})
	// Of 2 and 3, which were seen later, it does not know whether they were seen then.
	if n := res.Counts[0]; n.Min != 1 || n.Count != 2 || n.Max != 3 {
		t.Errorf("two hours that ended an hour ago: %+v, want 1 to 3", n)
	}
}

// TestRefusals checks the errors of operations that can't be answered.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newClock()
	e := engine(t, c, nil, nil, nil, nil)
	day := leaparray.Default().Span()
	limit := []twotier.Limit{{Window: day, Max: 1}}
	daily, err := twotier.ParsePeriod("day")
	must.Succeed(t, err)
	for field, op := range map[string]*distinct.Op{
		"limits[1].window": {Hashes: values(e, 1), Limits: []twotier.Limit{limit[0],
			{Max: 1, Period: daily}}},
		"window: 25h0m0.001s is longer than the namespace covers (25h); it needs `15m x 120`": {
			Windows: []int64{day + 1}},
		"limits[0].window": {Hashes: values(e, 1), Limits: []twotier.Limit{{Window: day + 1}}},
		"ts":               {Hashes: values(e, 1), TS: start - 5, Limits: limit},
		"values":           {Hashes: make([]uint64, distinct.MaxValues+1)},
		"ack":              {Hashes: values(e, 1), Ack: twotier.AckDisk},
		"at":               {TS: start - 5000, Windows: []int64{day - 2000}, Key: []byte("far")},
	} {
		if field == "at" {
			op.TS, op.Windows[0] = start-day+1, day
		}
		var res distinct.Result
		err := e.Do(t.Context(), op, &res, false)
		if invalid, ok := errors.AsType[*twotier.InvalidError](err); !ok ||
			fmt.Sprint(invalid)[:len(field)] != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestLimits adds values only as long as no window would hold too many.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]distinct.Store{"memory": nil, "two tiers": newMemory(),
		"in the store": newMemory()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			e := engine(t, c, store, nil, nil, nil)
			limits := []twotier.Limit{{Window: 60_000, Max: 2}, {Window: 3_600_000, Max: 3}}
			var shadow []int
			ask := func(want bool, counts string, names ...int) {
				t.Helper()
				op := &distinct.Op{Key: []byte("k"), Hashes: values(e, names...), Limits: limits,
					Shadow: shadow}
				var res distinct.Result
				run := func() error { return e.Do(t.Context(), op, &res, false) }
				if name == "in the store" {
					run = func() error { return e.DoInStore(t.Context(), op, &res) }
				}
				must.Succeed(t, run())
				got := fmt.Sprint(res.Counts[0].Count, res.Counts[1].Count, res.Over)
				if res.Allowed != want || got != counts {
					t.Errorf("%v: %v %s, want %v %s", names, res.Allowed, got, want, counts)
				}
			}
			ask(true, "1 1 []", 1)
			ask(false, "1 1 [0]", 2, 3) // all or nothing
			ask(true, "2 2 []", 1, 2)
			ask(true, "2 2 []", 2) // the window has it already
			ask(false, "2 2 [0]", 3)
			c.ms.Add(62_000)
			ask(true, "1 3 []", 3)
			ask(false, "1 3 [1]", 4)
			ask(true, "2 3 []", 1)
			shadow = []int{0}
			ask(false, "2 3 [0 1]", 4)
			shadow = []int{0, 1}
			ask(true, "3 4 [0 1]", 4)
		})
	}
}

// TestRetryAfter refuses values, and checks when they fit: not a millisecond before the reported
// time, and then they do. Values that newer buckets hold as well stay, and values that exceed the
// limit by themselves never fit.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]distinct.Store{"memory": nil, "in the store": newMemory()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			e := engine(t, c, store, nil, nil, nil)
			key := ""
			ask := func(op distinct.Op, names ...int) (res distinct.Result) {
				t.Helper()
				op.Key, op.Hashes = []byte(key), values(e, names...)
				run := func() error { return e.Do(t.Context(), &op, &res, false) }
				if name == "in the store" {
					run = func() error { return e.DoInStore(t.Context(), &op, &res) }
				}
				must.Succeed(t, run())
				return res
			}
			for k, tt := range []struct {
				most   []int64 // of a minute, and of an hour
				names  []int
				shadow []int
			}{
				{[]int64{4, 99}, []int{6}, nil}, {[]int64{1, 99}, []int{6}, nil},
				{[]int64{3, 99}, []int{6, 7}, nil}, {[]int64{2, 4}, []int{8}, nil},
				{[]int64{0, 4}, []int{9}, []int{0}}, {[]int64{3, 3}, []int{1, 9}, nil},
			} {
				key = fmt.Sprint("k", k)
				for i, names := range [][]int{{1, 2}, {3}, {1, 4}, {5}, {2}} {
					if i > 0 {
						c.ms.Add(7_777)
					}
					if res := ask(distinct.Op{}, names...); !res.Allowed || res.RetryAfter != 0 {
						t.Fatalf("%+v", res)
					}
				}
				op := distinct.Op{Shadow: tt.shadow, Limits: []twotier.Limit{
					{Window: 60_000, Max: tt.most[0]}, {Window: 3_600_000, Max: tt.most[1]}}}
				now := c.ms.Load()
				res := ask(op, tt.names...)
				if res.Allowed || res.RetryAfter < 1 || res.RetryAfter > 3_660_000 {
					t.Fatalf("%+v: %+v", tt, res)
				}
				after := res.RetryAfter
				c.ms.Store(now + after - 1)
				if res = ask(op, tt.names...); res.Allowed || res.RetryAfter != 1 {
					t.Errorf("%+v, a millisecond before: %+v", tt, res)
				}
				c.ms.Store(now + after)
				if res = ask(op, tt.names...); !res.Allowed || res.RetryAfter != 0 {
					t.Errorf("%+v, after %d ms: %+v", tt, after, res)
				}
			}
			minute := distinct.Op{Limits: []twotier.Limit{{Window: 60_000}}}
			for _, most := range []int64{0, 1} {
				minute.Limits[0].Max = most
				if res := ask(minute, 20, 21); res.Allowed || res.RetryAfter != -1 {
					t.Errorf("a limit of %d: %+v", most, res)
				}
			}
			minute.Limits = append([]twotier.Limit{{Window: 60_000, Max: 2}}, minute.Limits...)
			ask(distinct.Op{}, 30)
			if res := ask(minute, 20, 21); res.RetryAfter != -1 || len(res.Over) != 2 {
				t.Errorf("one limit never allows it: %+v", res)
			}
		})
	}
}

// TestReadsWhatTheStoreHas restarts: another engine reads the values flushed by the first.
func TestReadsWhatTheStoreHas(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	e := engine(t, c, store, nil, nil, nil)
	add(t, e, "k", 1, 2, 3)
	add(t, e, "l", 1)
	must.Succeed(t, e.Close(t.Context()))
	if s := e.Stats(); s.Pending != 0 {
		t.Errorf("%d keys were not flushed", s.Pending)
	}
	if err := e.Do(t.Context(), &distinct.Op{Key: []byte("k"), Hashes: values(e, 9)},
		new(distinct.Result), false); !errors.Is(err, twotier.ErrClosed) {
		t.Errorf("add after Close: %v", err)
	}
	second := engine(t, c, store, nil, nil, nil)
	add(t, second, "k", 3, 4) // which adds without reading first
	if n := query(t, second, "k", time.Minute).Count; n != 4 {
		t.Errorf("%d, want 4", n)
	}
	if n := query(t, second, "l", time.Hour).Count; n != 1 {
		t.Errorf("%d, want 1", n)
	}
}

// TestAckStore waits for the store, through lost requests and replies.
func TestAckStore(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	// Nothing is flushed unless an operation waits for it.
	e := engine(t, c, store, nil, nil, func(o *distinct.Options) { o.FlushInterval = time.Hour })
	op := distinct.Op{Key: []byte("k"), Hashes: values(e, 1, 2), Ack: twotier.AckStore}
	var res distinct.Result
	for _, f := range []fault{none, unheard, lost} {
		once := f
		store.set(func() fault { f := once; once = none; return f })
		op.Hashes = append(op.Hashes, values(e, 10+int(f))...)
		if err := e.Do(t.Context(), &op, &res, false); err != nil {
			t.Fatalf("fault %d: %v", f, err)
		}
		fresh := engine(t, c, store, nil, nil, nil)
		if n := query(t, fresh, "k", time.Minute).Count; n != int64(len(op.Hashes)) {
			t.Errorf("fault %d: the store has %d, want %d", f, n, len(op.Hashes))
		}
	}
	store.set(func() fault { return lost })
	op.Hashes = values(e, 99)
	if err := e.Do(t.Context(), &op, &res, false); !errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("without a store: %v", err)
	}
}

// TestStoreDown answers from memory, reports that, and flushes later.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	store.set(func() fault { return lost })
	e := engine(t, c, store, nil, nil, nil)
	add(t, e, "k", 1, 2)
	ask := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}
	if res := do(t, e, ask); !res.Degraded || res.Source != twotier.SourceDegraded ||
		res.Counts[0].Count != 2 {
		t.Errorf("without a store: %+v", res)
	}
	strict := &distinct.Op{NS: []byte("strict"), Key: []byte("k"), Hashes: values(e, 1),
		Limits: []twotier.Limit{{Window: 60_000, Max: 5}}}
	if err := e.Do(t.Context(), strict, new(distinct.Result), false); !errors.Is(err,
		twotier.ErrUnavailable) {
		t.Errorf("on-cold is deny: %v", err)
	}
	store.set(nil)
	eventually(t, "an answer that is not degraded, and nothing pending", func() bool {
		return !do(t, e, ask).Degraded && e.Stats().Pending == 0
	})
	do(t, e, strict)
	fresh := engine(t, c, store, nil, nil, nil)
	if n := query(t, fresh, "k", time.Minute).Count; n != 2 {
		t.Errorf("the store has %d, want 2", n)
	}
}

// TestLossIsRestored loses everything, and then the last moments: the engine writes its values
// again, even without requests for them.
func TestLossIsRestored(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	e := engine(t, c, store, nil, nil, nil)
	flushed := func() bool { return e.Stats().Pending == 0 }
	add(t, e, "k", 1, 2)
	eventually(t, "flushed", flushed)
	before := store.snapshot()
	add(t, e, "k", 3)
	eventually(t, "flushed", flushed)
	for name, left := range map[string]map[string]*stored{"everything": {}, "the last": before} {
		store.restore(left)
		eventually(t, "the store has it again after it lost "+name, func() bool {
			fresh := engine(t, c, store, nil, nil, nil)
			return query(t, fresh, "k", time.Minute).Count == 3
		})
	}
}

// finish flushes everything.
func finish(t *testing.T, e *distinct.Engine) {
	t.Helper()
	must.Succeed(t, e.Flush(t.Context()))
}

// TestAddAfterAReset adds to a key at an engine that missed an earlier reset: only values from
// before the reset are void.
func TestAddAfterAReset(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	first, second := engine(t, c, store, nil, nil, nil), engine(t, c, store, nil, nil, nil)
	key := []byte("k")
	add(t, first, "k", 1, 2)
	finish(t, first)
	if _, err := first.Forget(t.Context(), nil, key); err != nil {
		t.Fatal(err)
	}
	add(t, first, "k", 3)
	finish(t, first)
	c.ms.Add(1)
	add(t, second, "k", 4, 5)
	finish(t, second)
	op := &distinct.Op{Key: key, Windows: []int64{60_000}}
	for _, e := range []*distinct.Engine{second, engine(t, c, store, nil, nil, nil)} {
		if res := do(t, e, op); res.Counts[0].Count != 3 {
			t.Errorf("%+v, want the three values that were added after the reset", res)
		}
	}
}

// TestReset empties a key. Neither another engine's values in memory nor the store's values after
// it goes back in time come back.
func TestReset(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	var engines []*distinct.Engine
	for range 2 {
		engines = append(engines, engine(t, c, store, nil, nil, nil))
	}
	first, second := engines[0], engines[1]
	add(t, first, "k", 1, 2)
	eventually(t, "the other one has it", func() bool {
		return query(t, second, "k", time.Minute).Count == 2
	})
	before := store.snapshot()
	if _, err := first.Forget(t.Context(), nil, []byte("k")); err != nil {
		t.Fatal(err)
	}
	if n := query(t, first, "k", time.Minute).Count; n != 0 {
		t.Errorf("%d after the reset", n)
	}
	add(t, first, "k", 3)
	add(t, second, "k", 4) // it may not have learned of the reset yet
	eventually(t, "both have what was added since", func() bool {
		a, b := query(t, first, "k", time.Minute).Count, query(t, second, "k", time.Minute).Count
		// Values added by an engine that has not learned of the reset may be void.
		return a == b && (a == 1 || a == 2) && first.Stats().Pending+second.Stats().Pending == 0
	})
	want := query(t, first, "k", time.Minute).Count
	store.restore(before)
	eventually(t, "the store has the reset again", func() bool {
		return query(t, engine(t, c, store, nil, nil, nil), "k", time.Minute).Count == want
	})
	store.set(func() fault { return lost })
	if _, err := first.Forget(t.Context(), nil, []byte("k")); !errors.Is(err,
		twotier.ErrUnknownOutcome) {
		t.Errorf("without a store: %v", err)
	}
	alone := engine(t, c, nil, nil, nil, nil)
	add(t, alone, "k", 1)
	_, err := alone.Forget(t.Context(), nil, []byte("k"))
	must.Succeed(t, err)
	do(t, alone, &distinct.Op{Key: []byte("k"), TS: start - 5, Hashes: values(alone, 2)}) // late
	if n := query(t, alone, "k", time.Minute).Count; n != 0 {
		t.Errorf("in memory alone: %d", n)
	}
	if add(t, alone, "k", 3); query(t, alone, "k", time.Minute).Count != 1 {
		t.Error("in memory alone, the next value does not count")
	}
}

// TestExactWhileOldValuesLeave adds values at a steady rate to a key that may hold as many as the
// longest window has. It stays exact, also when another engine reads it.
func TestExactWhileOldValuesLeave(t *testing.T) {
	t.Parallel()
	const most = 1000
	c, store := newClock(), newMemory()
	few := func(o *distinct.Options) {
		o.Namespaces = map[string]distinct.Namespace{twotier.DefaultNamespace: {Ladder: ladder(t),
			MostValues: most}}
	}
	e := engine(t, c, store, nil, nil, few)
	span := leaparray.Default().Span()
	for i := range 3 * most {
		c.ms.Add(span/most + 1)
		add(t, e, "k", i)
		if n := query(t, e, "k", time.Duration(span)*time.Millisecond); n.Error != 0 ||
			n.Count != int64(min(i+1, most)) {
			t.Fatalf("after %d values: %+v", i+1, n)
		}
	}
	// The store still has values that have left every window.
	must.Succeed(t, e.Flush(t.Context()))
	next := engine(t, c, store, nil, nil, few)
	if n := query(t, next, "k", time.Duration(span)*time.Millisecond); n.Error != 0 ||
		n.Count != most {
		t.Errorf("from the store: %+v", n)
	}
}

// TestMemoryIsBounded adds more keys than memory has room for. Keys that left memory are read
// again.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	const room = 100 << 10
	e := engine(t, c, store, nil, nil, func(o *distinct.Options) { o.MaxMemory = room })
	name := func(i int) string { return fmt.Sprint("key", i) }
	for i := range 500 {
		op := &distinct.Op{Key: []byte(name(i)), Hashes: values(e, i, i+1, i+2)}
		eventually(t, "room", func() bool {
			err := e.Do(t.Context(), op, new(distinct.Result), false)
			if err != nil && !errors.Is(err, twotier.ErrFull) {
				t.Fatal(err)
			}
			return err == nil
		})
		if s := e.Stats(); s.Bytes > room/4*5 {
			t.Fatalf("%d bytes, %d are allowed", s.Bytes, room)
		}
	}
	for i := range 500 {
		var res distinct.Result
		op := &distinct.Op{Key: []byte(name(i)), Windows: []int64{60_000}}
		eventually(t, "room", func() bool { return e.Do(t.Context(), op, &res, false) == nil })
		if res.Counts[0].Count != 3 {
			t.Fatalf("%s: %d, want 3", name(i), res.Counts[0].Count)
		}
	}
	store.set(func() fault { return lost })
	err := error(nil)
	for i := 0; err == nil && i < 500; i++ {
		op := &distinct.Op{Key: fmt.Append(nil, "more", i), Hashes: values(e, 1)}
		err = e.Do(t.Context(), op, new(distinct.Result), false)
	}
	if !errors.Is(err, twotier.ErrFull) {
		t.Errorf("memory full of what the store does not take: %v", err)
	}
}

// TestStoreIsBounded counts for three days: a chunk in the store that is written has only values
// that a window reaches.
func TestStoreIsBounded(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	e := engine(t, c, store, nil, nil, nil)
	for i := range 3 * 24 * 4 {
		c.ms.Add(15 * 60_000)
		op := &distinct.Op{Key: []byte("k"), Hashes: values(e, i), Ack: twotier.AckStore}
		do(t, e, op)
		if n := store.valueCount(t); n > 2*101 {
			t.Fatalf("%d values in the store, the longest window has 101", n)
		}
	}
	if n := query(t, e, "k", 24*time.Hour).Count; n != 96 {
		t.Errorf("%d values in a day, want 96", n)
	}
}

// TestManyWriters runs several engines that all decide in place of each other, with a store that
// loses requests and replies. In the end each has all values, and nothing else.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	random := rand.New(rand.NewPCG(1, 1))
	store.set(sometimes(random, 0.3))
	var engines []*distinct.Engine
	for range 3 {
		engines = append(engines, engine(t, c, store, nil, nil, nil))
	}
	sure, maybe := map[string]map[int]bool{}, map[string]map[int]bool{}
	for i := range 5 {
		sure[fmt.Sprint("k", i)], maybe[fmt.Sprint("k", i)] = map[int]bool{}, map[int]bool{}
	}
	choose := rand.New(rand.NewPCG(2, 2))
	for range 600 {
		e := engines[choose.IntN(len(engines))]
		key, value := fmt.Sprint("k", choose.IntN(5)), choose.IntN(300)
		op := &distinct.Op{Key: []byte(key), Hashes: values(e, value)}
		var res distinct.Result
		err := error(nil)
		if how := choose.IntN(4); how == 0 {
			err = e.DoInStore(t.Context(), op, &res)
		} else {
			op.Windows = []int64{60_000}[:how%2]
			err = e.Do(t.Context(), op, &res, false)
		}
		switch {
		case err == nil:
			sure[key][value] = true
			fallthrough
		case errors.Is(err, twotier.ErrUnknownOutcome):
			maybe[key][value] = true
		case !errors.Is(err, twotier.ErrUnavailable):
			t.Fatal(err)
		}
	}
	store.set(nil)
	for i, e := range engines {
		for key := range sure {
			n := int64(0)
			eventually(t, fmt.Sprintf("engine %d has all of %s", i, key), func() bool {
				n = query(t, e, key, time.Minute).Count
				return n >= int64(len(sure[key]))
			})
			if n > int64(len(maybe[key])) {
				t.Errorf("engine %d: %d values of %s, %d were added", i, n, key, len(maybe[key]))
			}
		}
	}
	flush, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, e := range engines {
		if err := e.Flush(flush); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatTheStoreLostIsAcknowledgedOnceItIsBack adds a value in the store that the store has lost
// since this node read it. An acknowledged value is in the store, even if the node ends at once.
func TestWhatTheStoreLostIsAcknowledgedOnceItIsBack(t *testing.T) {
	r := newResets(t)
	a := r.engine()
	r.inStore(a, 1, 1)
	r.store.restore(map[string]*stored{})
	r.inStore(a, 1, 1)
	r.inStore(r.engine(), 1)

	r.store.restore(map[string]*stored{})
	r.inStore(a, 2, 2)
	r.inStore(r.engine(), 2)
}

// TestWhatIsOnlyHereIsNotWritten fails to write unflushed values before the operation has decided
// anything: the error means that nothing was done.
func TestWhatIsOnlyHereIsNotWritten(t *testing.T) {
	r := newResets(t)
	a := r.engine()
	add(t, a, string(oneKey), 1)
	r.store.set(func() fault { return unheard })
	var res distinct.Result
	op := &distinct.Op{Key: oneKey, Hashes: values(a, 2)}
	if err := a.DoInStore(t.Context(), op, &res); !errors.Is(err, twotier.ErrUnavailable) ||
		errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("%v, want that nothing was done", err)
	}
	r.store.set(nil)
	r.inStore(a, 1)
	r.inStore(r.engine(), 1)
}

// refuses is a store that can be reached but answers with an error.
type refuses struct{ *memory }

func (r refuses) Compare(ctx context.Context, list []*distinct.Exchange) {
	r.memory.Compare(ctx, list)
	for _, x := range list {
		if x.Err != nil {
			x.Err = fmt.Errorf("loading: %w", syncer.ErrRefused)
		}
	}
}

// TestOnColdSaysNothingOfRefusedValues checks limits of a key that the store refuses to read.
func TestOnColdSaysNothingOfRefusedValues(t *testing.T) {
	t.Parallel()
	store := newMemory()
	store.set(func() fault { return lost })
	e := engine(t, newClock(), refuses{store}, nil, nil, nil)
	for _, ns := range []string{"", "strict"} {
		op := &distinct.Op{NS: []byte(ns), Key: []byte("k"), Hashes: values(e, 1),
			Limits: []twotier.Limit{{Window: 60_000, Max: 5}}}
		if err := e.Do(t.Context(), op, new(distinct.Result), false); !errors.Is(err,
			twotier.ErrUnavailable) {
			t.Errorf("in namespace %q: %v", ns, err)
		}
		store.set(nil)
		do(t, e, op)
		op.Hashes = values(e, 1, 2, 3, 4, 5, 6)
		if res := do(t, e, op); res.Allowed || res.Degraded {
			t.Errorf("in namespace %q, afterwards: %+v", ns, res)
		}
		store.set(func() fault { return lost })
	}
	ask := &distinct.Op{Key: []byte("other"), Windows: []int64{60_000}}
	if res := do(t, e, ask); !res.Degraded {
		t.Errorf("a count: %+v", res)
	}
	store.set(nil)
}
