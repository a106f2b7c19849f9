package distinct_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/extended"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

const minute = 60_000

// newCounter returns a counter in memory.
func newCounter(t *testing.T) *distinct.Counter {
	t.Helper()
	counter, err := syncer.New(syncer.Options{Now: func() int64 { return 1_700_000_000_000 },
		Placement: twotier.Placement{Partitions: 1}})
	must.Succeed(t, err)
	must.Succeed(t, counter.Open(t.Context()))
	t.Cleanup(func() { must.Succeed(t, counter.Close(context.Background())) })
	return &distinct.Counter{Service: extended.Service{Counter: counter}}
}

func values(names ...string) (list [][]byte) {
	for _, name := range names {
		list = append(list, []byte(name))
	}
	return list
}

// TestLimitsAndShadow adds values under a limit and another one in shadow, alone and in a batch.
// The one in shadow is compared with what the values would make, also if the other refuses.
func TestLimitsAndShadow(t *testing.T) {
	for _, batch := range []bool{false, true} {
		c := newCounter(t)
		for i, step := range []struct {
			shadow int64 // its maximum
			add    [][]byte
			want   string
		}{
			{2, values("a", "b"), "true [] [2 2 2]"},
			{2, values("c"), "true [1] [3 3 3]"},
			{3, values("c", "a"), "true [] [3 3 3]"},
			{3, values("d"), "false [0 1] [3 3 3]"},
			{4, values("d"), "false [0] [3 3 3]"},
			{4, values("d", "e"), "false [0 1] [3 3 3]"},
			{0, nil, "true [] [3]"},
		} {
			op := &distinct.Op{Key: []byte("k"), Windows: []int64{minute}}
			if step.add != nil {
				op.Limits = []twotier.Limit{{Window: minute, Max: 3},
					{Window: minute / 2, Max: step.shadow}}
				op.Shadow = []int{1}
			}
			call := distinct.Call{Op: op, Values: step.add, Res: new(distinct.Result)}
			if batch {
				calls := []distinct.Call{call}
				c.DistinctAll(t.Context(), calls)
				call = calls[0]
			} else {
				call.Err = c.Distinct(t.Context(), op, step.add, call.Res)
			}
			var counts []int64
			for _, n := range call.Res.Counts {
				counts = append(counts, n.Count)
			}
			got := fmt.Sprint(call.Res.Allowed, call.Res.Over, counts)
			if got != step.want || call.Err != nil ||
				call.Res.Allowed != (call.Res.RetryAfter == 0) {
				t.Errorf("batch %v, step %d: %s after %d, %v; want %s", batch, i, got,
					call.Res.RetryAfter, call.Err, step.want)
			}
		}
	}
}

// TestErrorsNameTheOperationsOwnFields has limits and windows that are too long, alone and among
// good operations of a batch, which are executed.
func TestErrorsNameTheOperationsOwnFields(t *testing.T) {
	c := newCounter(t)
	const long = 1 << 50
	good := &distinct.Op{Key: []byte("k"), Windows: []int64{minute}}
	for _, one := range []struct {
		op   distinct.Op
		want string
	}{
		{distinct.Op{Limits: []twotier.Limit{{Window: minute, Max: 1}, {Window: long, Max: 1}}},
			"limits[1].window: "},
		{distinct.Op{Limits: []twotier.Limit{{Window: minute, Max: 1}}, Windows: []int64{long}},
			"window: "},
		{distinct.Op{TS: 5, Limits: []twotier.Limit{{Window: minute}}}, "ts: "},
		{distinct.Op{Ack: twotier.AckDisk}, "ack: "},
		{distinct.Op{Windows: []int64{0}}, "window: distinct values have no calendar windows"},
	} {
		one.op.Key = []byte("k")
		calls := []distinct.Call{{Op: good, Values: values("a"), Res: new(distinct.Result)},
			{Op: &one.op, Values: values("b"), Res: new(distinct.Result)},
			{Op: good, Res: new(distinct.Result)}}
		c.DistinctAll(t.Context(), calls)
		var invalid *twotier.InvalidError
		if !errors.As(calls[1].Err, &invalid) || len(invalid.Error()) < len(one.want) ||
			invalid.Error()[:len(one.want)] != one.want {
			t.Errorf("%v, want %s", calls[1].Err, one.want)
		}
		if calls[0].Err != nil || calls[2].Err != nil || calls[2].Res.Counts[0].Count != 1 {
			t.Errorf("%v, %v, %+v", calls[0].Err, calls[2].Err, calls[2].Res)
		}
	}
}

// refusing is a service that refuses without a limit, as a counter does that must not decide about
// a key that it does not know.
type refusing struct{}

func (refusing) Do(_ context.Context, op *twotier.Op, res *twotier.Result) error {
	res.Reset()
	res.RetryAfter = 1000
	res.AddCheck().Refused = true
	res.Values = []twotier.CheckResult{{Refused: true,
		Limits: make([]twotier.LimitResult, len(op.Values[0].Limits))}}
	return nil
}

func (s refusing) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = s.Do(ctx, &ops[i], &res[i])
	}
}

// TestUnknownValuesAreNotJudged has a counter that refuses what it must not decide.
func TestUnknownValuesAreNotJudged(t *testing.T) {
	c := &distinct.Counter{Service: refusing{}}
	calls := []distinct.Call{{Op: &distinct.Op{Key: []byte("k"), Shadow: []int{1},
		Limits: []twotier.Limit{{Window: minute, Max: 1}, {Window: minute, Max: 1}}},
		Values: values("a"), Res: new(distinct.Result)}}
	c.DistinctAll(t.Context(), calls)
	err := c.Distinct(t.Context(), calls[0].Op, calls[0].Values, calls[0].Res)
	for _, err := range []error{err, calls[0].Err} {
		if !errors.Is(err, twotier.ErrUnavailable) {
			t.Error(err)
		}
	}
}

// TestHash: hashes depend on the seed, and none stands for a class of values.
func TestHash(t *testing.T) {
	var all []uint64
	for i := range 1000 {
		all = append(all, distinct.Hash(uint64(i%2), fmt.Append(nil, i/2)))
	}
	slices.Sort(all)
	if all[0] < 64 || len(slices.Compact(all)) != 1000 {
		t.Errorf("%d different ones, the lowest is %d", len(slices.Compact(all)), all[0])
	}
}
