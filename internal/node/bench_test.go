package node_test

import (
	"context"
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
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
