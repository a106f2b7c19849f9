package node_test

import (
	"context"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
)

// refusing returns a function that makes a node refuse an acquire as an endpoint does, and count
// its verdict.
func refusing(t testing.TB, n *node.Node) func() {
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("alice"), N: 1,
		Limits: []twotier.Limit{{Window: 60_000}}}}}
	var res twotier.Result
	var run verdicts.Run
	counters, of := n.Verdicts(), &verdicts.Arrival{Endpoint: verdicts.HTTP}
	return func() {
		must.Succeed(t, n.Do(t.Context(), &op, &res))
		run.Begin(counters, of)
		run.BeginDecision()
		run.BeginCheck()
		run.CountCheck(&op, 0, &res, nil)
		if run.RefusalID().IsZero() {
			t.Fatal("the refusal has no id")
		}
		run.End(0)
	}
}

// TestRefusalsReachTheSinks: a refusal is in the metrics, the log of refusals and the list of
// refused keys, and takes no memory.
func TestRefusalsReachTheSinks(t *testing.T) {
	n := alone(t, node.Options{})
	defer func() { must.Succeed(t, n.Close(context.Background())) }()
	refuse := refusing(t, n)
	for range 99 {
		refuse()
	}
	if allocations := testing.AllocsPerRun(99, refuse); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
	const times = 199
	rows, err := n.Top(t.Context(), "refused", "", 9, 60_000)
	if want := []twotier.KeyCount{{NS: "default", Key: "alice", Count: times}}; err != nil ||
		!slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	if rows := n.Verdicts().Rows(); len(rows) != 1 || rows[0].Totals[twotier.Refused] != times {
		t.Errorf("%+v", rows)
	}
	list := n.Refusals(t.Context(), nil, []byte("alice"), 9)
	if len(list) == 0 || list[0].Door != verdicts.HTTP {
		t.Errorf("%+v", list)
	}
}

// BenchmarkRefusal refuses an acquire and counts its verdict.
func BenchmarkRefusal(b *testing.B) {
	n := alone(b, node.Options{})
	defer func() { must.Succeed(b, n.Close(context.Background())) }()
	refuse := refusing(b, n)
	b.ReportAllocs()
	for b.Loop() {
		refuse()
	}
}
