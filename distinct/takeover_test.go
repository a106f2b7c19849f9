package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// ownsAll is the owner of all partitions.
type ownsAll struct{}

func (ownsAll) Tenure(int) (tenure int64, decides bool) { return 1, true }

// partitions are those of the tests.
var partitions = []int{0, 1, 2, 3, 4, 5, 6}

// TestTakeover begins to decide about keys of which another engine has values that the store does
// not have yet. The first to ask has no time left; what it learns is for those that follow.
func TestTakeover(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newMemory()
	never := func(o *distinct.Options) { o.FlushInterval = time.Hour }
	before := engine(t, c, store, nil, nil, never)
	add(t, before, "k", 1, 2, 3)
	asked := 0
	gather := func(ctx context.Context, list []int) []distinct.Pending {
		if asked++; ctx.Err() != nil {
			return nil
		}
		return before.Pending(list)
	}
	after := engine(t, c, store, ownsAll{}, gather, never)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	limited := &distinct.Op{Key: []byte("k"), Hashes: values(after, 4),
		Limits: []syncer.Limit{{Window: 60_000, Max: 3}}}
	var res distinct.Result
	if err := after.Do(late, limited, &res, false); err != nil &&
		!errors.Is(err, syncer.ErrUnavailable) {
		t.Fatal(err)
	}
	if res := do(t, after, limited); res.Allowed || res.Counts[0].Values != 3 {
		t.Errorf("%+v, want 3 values and no room for a fourth", res)
	}
	if asked != 1 {
		t.Errorf("the others were asked %d times", asked)
	}
}

// TestTakeoverBetweenLadders hands over what is in buckets that the new owner numbers otherwise, or
// does not have at all.
func TestTakeoverBetweenLadders(t *testing.T) {
	t.Parallel()
	terms := func(l *leaparray.Ladder, ids [leaparray.MaxLevels]uint8) func(o *distinct.Options) {
		l = l.Under(func() *leaparray.Terms {
			return &leaparray.Terms{ID: ids,
				Reach: [leaparray.MaxLevels]int64{0, 60_000, 3_600_000, 86_400_000}}
		})
		return func(o *distinct.Options) {
			o.Namespaces = map[string]distinct.Namespace{syncer.DefaultNamespace: {Ladder: l}}
		}
	}
	finer, err := leaparray.ParseLadder("100ms x 50, 1s x 60, 1m x 60, 15m x 96")
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	for i, change := range []func(o *distinct.Options){
		terms(finer, [leaparray.MaxLevels]uint8{3, 0, 1, 2}), nil} {
		other := []func(o *distinct.Options){nil,
			terms(finer, [leaparray.MaxLevels]uint8{3, 0, 1, 2})}[i]
		before := engine(t, c, newMemory(), nil, nil, func(o *distinct.Options) {
			if o.FlushInterval = time.Hour; change != nil {
				change(o)
			}
		})
		add(t, before, "k", 1, 2, 3)
		after := engine(t, c, newMemory(), nil, nil, other)
		after.Import(before.Pending(partitions))
		for _, window := range []time.Duration{30 * time.Second, time.Hour, 24 * time.Hour} {
			if n := query(t, after, "k", window); n.Values != 3 {
				t.Errorf("%d: %v: %+v", i, window, n)
			}
		}
	}
}

// TestQueriesEndWithTheEngine asks a closed engine for a key that is not in memory.
func TestQueriesEndWithTheEngine(t *testing.T) {
	t.Parallel()
	e := engine(t, newClock(), newMemory(), nil, nil, nil)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := do(t, e, &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}); !res.Degraded {
		t.Errorf("%+v", res)
	}
}

// half is a store of which a part is gone: that with keys that begin with x.
type half struct{ *memory }

func (h half) Compare(ctx context.Context, list []*distinct.Exchange) {
	var there []*distinct.Exchange
	for _, x := range list {
		if x.Err = nil; x.Key[0] == 'x' {
			x.Err = errStore
		} else {
			there = append(there, x)
		}
	}
	h.memory.Compare(ctx, there)
}

// TestFlushesWhatAnswers flushes keys of a part of the store that answers while another one does
// not.
func TestFlushesWhatAnswers(t *testing.T) {
	t.Parallel()
	e := engine(t, newClock(), half{newMemory()}, nil, nil, nil)
	for i := range 100 {
		add(t, e, fmt.Sprint("x", i), 1)
		add(t, e, fmt.Sprint("k", i), 1)
	}
	eventually(t, "only what is gone is pending", func() bool { return e.Stats().Pending == 100 })
}

// readonly is a store that refuses to write.
type readonly struct{ *memory }

func (r readonly) Compare(ctx context.Context, list []*distinct.Exchange) {
	for _, x := range list {
		if x.Version == "" {
			r.memory.Compare(ctx, []*distinct.Exchange{x})
		} else {
			x.Err = syncer.ErrRefused
		}
	}
}

// TestRefusedWritesAreSaid answers that the values are in memory alone if the store does not take
// them, although it can be read.
func TestRefusedWritesAreSaid(t *testing.T) {
	t.Parallel()
	e := engine(t, newClock(), readonly{newMemory()}, nil, nil, nil)
	ask := &distinct.Op{Key: []byte("k"), Windows: []int64{60_000}}
	do(t, e, ask)
	add(t, e, "k", 1)
	eventually(t, "an answer that is degraded", func() bool { return do(t, e, ask).Degraded })
	if res := do(t, e, &distinct.Op{Key: []byte("l"), Windows: []int64{60_000}}); res.Degraded {
		t.Errorf("a key that can be read: %+v", res)
	}
}
