package node_test

import (
	"context"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/syncer"
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
	limits := []syncer.Limit{{Window: 60_000, Max: 1 << 40}}
	never := []syncer.Limit{{Window: 60_000}}
	for _, bench := range []struct {
		name   string
		kind   syncer.Kind
		limits []syncer.Limit
	}{
		{"add", syncer.Add, limits},
		{"acquire", syncer.Acquire, limits},
		{"refused", syncer.Acquire, never},
	} {
		ops, res := make([]syncer.Op, 1000), make([]syncer.Result, 1000)
		for i := range ops {
			key := fmt.Appendf(nil, "key%d", i)
			check := syncer.Check{Key: key, N: 1, Limits: bench.limits}
			ops[i] = syncer.Op{Kind: bench.kind, Checks: []syncer.Check{check}}
		}
		b.Run(bench.name+"/one", func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := n.Do(b.Context(), &ops[i%len(ops)], &res[0]); err != nil {
					b.Fatal(err)
				}
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
