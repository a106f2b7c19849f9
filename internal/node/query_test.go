package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

// slow fakes a Redis that counts nothing and blocks its reads.
type slow struct {
	node.Direct
	reading chan struct{} // one element for each read that has begun
	letGo   chan struct{}
}

func (d *slow) Do(_ context.Context, _ *twotier.Op, res *twotier.Result) error {
	res.Source = twotier.SourceRedis
	return nil
}

func (d *slow) Snapshot(ctx context.Context, _, key []byte) (v leaparray.View, now int64,
	err error) {
	d.reading <- struct{}{}
	select {
	case <-d.letGo:
	case <-ctx.Done():
		return v, 0, ctx.Err()
	}
	if string(key) == "broken" {
		return v, 0, twotier.ErrUnavailable
	}
	v = leaparray.View{Ladder: leaparray.Default(), Now: 1_763_000_000_000}
	return v, v.Now, nil
}

// TestOneBacktestAtATime makes a second backtest wait for the first, which reports the key that it
// could not read.
func TestOneBacktestAtATime(t *testing.T) {
	d := &slow{reading: make(chan struct{}, 9), letGo: make(chan struct{})}
	n, err := node.New(node.Options{ID: "n", Mode: cluster.Redis, Direct: d, Store: still{},
		Clock: storeclock.New(nil, nil), Placement: twotier.Placement{Partitions: 1}})
	must.Succeed(t, err)
	must.Succeed(t, n.Open(t.Context(), ""))
	defer n.Close(t.Context())
	for _, key := range []string{"whole", "broken"} {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: 1}}}
		must.Succeed(t, n.Do(t.Context(), &op, new(twotier.Result)))
	}
	rules := []*twotier.Rule{{Name: "r", Limits: []twotier.RuleLimit{{Window: 1000, Max: 1,
		Text: "1s"}}}}
	first := make(chan error)
	go func() {
		r, err := n.Backtest(t.Context(), rules, 9)
		if err == nil && (r.LookedAt != 1 || r.Unread != 1) {
			t.Errorf("looked at %d keys, not at %d", r.LookedAt, r.Unread)
		}
		first <- err
	}()
	<-d.reading
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Backtest(hurried, rules, 9); !errors.Is(err, twotier.ErrOverload) {
		t.Errorf("the second one while the first reads: %v", err)
	}
	close(d.letGo)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := n.Backtest(t.Context(), rules, 9); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

// valuesOp returns an operation that adds values, if any, and counts those of a minute.
func valuesOp(key []byte, values ...string) *twotier.Op {
	op := &twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{Key: key}},
		Values: []twotier.ValuesOf{{Limits: []twotier.Limit{{Window: 60_000,
			Max: twotier.MaxBound}}}}}
	for _, value := range values {
		op.Kind, op.Values[0].Values = twotier.Add, append(op.Values[0].Values, []byte(value))
	}
	return op
}

// TestForwardedAcquireWithValues acquires events and values of a key of another node, which decides
// both at once, and compares the values with a limit in shadow once it refuses.
func TestForwardedAcquireWithValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []twotier.Op
		peers := &others{acquire: func(op *twotier.Op, res *twotier.Result) {
			got = append(got, *op)
			res.Reset()
			res.Source = twotier.SourceMemory
			for range op.Checks {
				c := res.AddCheck()
				c.Refused = true
				c.Limits = []twotier.LimitResult{{Window: 60_000, Refused: true}}
			}
		}}
		n, key := beside(t, &failing{}, peers)
		limits := []twotier.Limit{{Window: 60_000, Max: 5}}
		op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: key, N: 1,
			Limits: limits}}, Values: []twotier.ValuesOf{{Values: [][]byte{[]byte("a")},
			Limits: append(limits, twotier.Limit{Window: 60_000, Max: 1}), Shadow: []int{1}}}}
		var one twotier.Result
		must.Succeed(t, n.Do(t.Context(), &op, &one))
		if len(got) != 2 || len(got[0].Checks) != 2 || !got[0].Checks[1].IsValues() ||
			got[0].Checks[1].Values[0] != companions.HashValue(0, []byte("a")) ||
			got[0].Checks[1].Limits[1].Max != twotier.MaxBound || !got[1].DryRun ||
			len(got[1].Checks) != 1 || got[1].Checks[0].Limits[0].Max != 1 {
			t.Errorf("forwarded %+v", got)
		}
		if len(one.Checks) != 1 || len(one.Values) != 1 || !one.Values[0].Refused {
			t.Errorf("%+v", one)
		}
	})
}

// TestResetForgetsValues resets keys with values.
func TestResetForgetsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := &others{acquire: func(_ *twotier.Op, res *twotier.Result) {
			res.Err = twotier.ErrFull
		}}
		n, _ := beside(t, &failing{}, peers)
		here := 0
		for i := range 20 {
			key := fmt.Append(nil, "k", i)
			if n.Do(t.Context(), valuesOp(key, "v"), new(twotier.Result)) != nil {
				continue // the other node's
			}
			here++
			var res twotier.Result
			err := errors.Join(n.Reset(t.Context(), nil, key),
				n.Do(t.Context(), valuesOp(key), &res))
			if err != nil || res.Values[0].Limits[0].Count != 0 {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
		}
		if here == 0 {
			t.Error("the node owns no key")
		}
	})
}
