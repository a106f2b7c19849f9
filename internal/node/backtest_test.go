package node_test

import (
	"context"
	"errors"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
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
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Open(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	defer n.Close(t.Context())
	for _, key := range []string{"whole", "broken"} {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: 1}}}
		if err := n.Do(t.Context(), &op, new(twotier.Result)); err != nil {
			t.Fatal(err)
		}
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
