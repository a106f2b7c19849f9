package node_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// BenchmarkLocal runs operations on keys in this node's memory. The difference from syncer's
// BenchmarkAddsAmong is the node's overhead.
func BenchmarkLocal(b *testing.B) {
	n := alone(b, node.Options{})
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	limits := []twotier.Limit{{Window: 60_000, Max: 1 << 40}}
	never := []twotier.Limit{{Window: 60_000}}
	for _, bench := range []struct {
		name   string
		kind   twotier.Kind
		limits []twotier.Limit
	}{
		{"add", twotier.Add, limits},
		{"acquire", twotier.Acquire, limits},
		{"refused", twotier.Acquire, never},
	} {
		ops, res := make([]twotier.Op, 1000), make([]twotier.Result, 1000)
		for i := range ops {
			key := fmt.Appendf(nil, "key%d", i)
			check := twotier.Check{Key: key, N: 1, Limits: bench.limits}
			ops[i] = twotier.Op{Kind: bench.kind, Checks: []twotier.Check{check}}
		}
		b.Run(bench.name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				must.Succeed(b, n.Do(b.Context(), &ops[i%len(ops)], &res[0]))
				i++
			}
		})
		b.Run(bench.name+"/batch=1000", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.DoAll(b.Context(), ops, res)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/operation")
		})
	}
}

// BenchmarkHolds compares acquires with a hold, whose id is sealed, with plain ones, and
// settlements with adds, on keys in this node's memory. The requests take turns, and the figures
// are the medians of the turns: times in nanoseconds per request, and the ratios.
func BenchmarkHolds(b *testing.B) {
	n := alone(b, node.Options{})
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	h := newHoldBench(b, n)
	const turn = 500
	took := map[string][]float64{}
	timed := func(name string, fn func(i int)) float64 {
		start := time.Now()
		for i := range turn {
			fn(i)
		}
		ns := float64(time.Since(start).Nanoseconds()) / turn
		took[name] = append(took[name], ns)
		return ns
	}
	var ratios [3][]float64
	var ids, leased [turn]string
	for b.Loop() {
		acquire := timed("acquire", func(i int) { h.acquire(i, 0, false) })
		hold := timed("hold", func(i int) { ids[i] = h.acquire(i, 60_000, false) })
		lease := timed("lease", func(i int) { leased[i] = h.acquire(i, 60_000, true) })
		add := timed("add", h.add)
		settle := timed("settle", func(i int) { h.settle(ids[i]) })
		timed("settle-lease", func(i int) { h.settle(leased[i]) })
		for i, r := range [...]float64{hold / acquire, lease / acquire, settle / add} {
			ratios[i] = append(ratios[i], r)
		}
	}
	for name, list := range took {
		b.ReportMetric(median(list), name+"-ns")
	}
	for i, name := range []string{"hold/acquire", "lease/acquire", "settle/add"} {
		b.ReportMetric(math.Round(100*median(ratios[i]))/100, name)
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// holdBench sends requests to a node as an endpoint does.
type holdBench struct {
	b    *testing.B
	n    *node.Node
	r    ask.Request
	res  []twotier.Result
	keys [1000][]byte
}

func newHoldBench(b *testing.B, n *node.Node) *holdBench {
	now := func() int64 { return time.Now().UnixMilli() }
	all := &ask.Holds{Now: now, Tally: holds.Tally{Now: now}}
	all.Sealer.SetSecret([]byte("a secret of a cluster, in all nodes"))
	h := &holdBench{b: b, n: n, r: ask.Request{Rules: new(rules.Book), Holds: all},
		res: make([]twotier.Result, 1)}
	for i := range h.keys {
		h.keys[i] = fmt.Appendf(nil, "user:%d", i)
	}
	return h
}

// begin begins a request about a key.
func (h *holdBench) begin(i int, kind twotier.Kind, leases bool) (op twotier.Op) {
	h.r.Reset()
	h.r.BeginOp()
	h.r.BeginCheck()
	if kind == twotier.Acquire {
		h.r.AddLimit(twotier.Limit{Window: 60_000, Max: 1 << 40}, nil)
	}
	if leases {
		h.r.LimitLeases(1 << 30)
	}
	return twotier.Op{Kind: kind}
}

func (h *holdBench) end(i int, op *twotier.Op) {
	c := twotier.Check{Key: h.keys[i%len(h.keys)], N: 1}
	if _, _, f := h.r.PrepareCheck(&c, op.Kind); f != nil {
		h.b.Fatal(f)
	}
	h.r.EndCheck(&c, op.Kind)
	if h.r.NeedsHold(op) {
		if f := h.r.CheckHold(op); f != nil {
			h.b.Fatal(f)
		}
	}
	h.r.EndOp(op, 0)
	h.r.Link()
	if err := h.n.Do(h.b.Context(), &h.r.Ops[0], &h.res[0]); err != nil {
		h.b.Fatal(err)
	}
}

func (h *holdBench) add(i int) {
	op := h.begin(i, twotier.Add, false)
	h.end(i, &op)
}

// acquire acquires a key for that many milliseconds and returns the id, if it is held.
func (h *holdBench) acquire(i int, lasts int64, leases bool) string {
	op := h.begin(i, twotier.Acquire, leases)
	op.Hold = lasts
	h.end(i, &op)
	return h.r.HoldID(0, &h.res[0])
}

func (h *holdBench) settle(id string) {
	a, f := h.r.Settle(h.b.Context(), h.n, &ask.Settling{ID: id, All: 3})
	if f != nil || a.Repeated {
		h.b.Fatal(a, f)
	}
}
