package node_test

import (
	"context"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/node"
)

// BenchmarkLocal runs operations on keys in this node's memory. It shows what the node adds to
// syncer's BenchmarkAddsAmong.
func BenchmarkLocal(b *testing.B) {
	n := alone(b, node.Options{})
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	limits := []node.Limit{{Window: 60_000, Max: 1 << 40}}
	for _, bench := range []struct {
		name string
		op   node.Op
	}{
		{"add", node.Op{Kind: node.Add}},
		{"acquire", node.Op{Kind: node.Acquire}},
	} {
		ops, res := make([]node.Op, 1000), make([]node.Result, 1000)
		for i := range ops {
			ops[i] = bench.op
			ops[i].Checks = []node.Check{{Key: fmt.Appendf(nil, "key%d", i), N: 1, Limits: limits}}
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
