package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// BenchmarkAdd counts through three nodes in this process: client, nodes and network share its
// CPUs. With owners, adds go straight to them; without, to any node, which forwards two of three.
// Alone is a single node that owns all keys.
func BenchmarkAdd(b *testing.B) {
	for _, mode := range []struct {
		name  string
		nodes int
		only  bool
	}{{"alone", 1, false}, {"owners", 3, false}, {"forwarded", 3, true}} {
		b.Run(mode.name, func(b *testing.B) {
			bed := newBed(b, mode.nodes)
			c := bed.client(func(o *client.Options) { o.OnlyAddresses = mode.only })
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
				_, err := c.Add(b.Context(), client.AddRequest{Key: keys[i]})
				must.Succeed(b, err)
			}
			var next atomic.Int64
			b.SetParallelism(64)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(7919)); pb.Next(); i++ {
					if _, err := c.Add(b.Context(),
						client.AddRequest{Key: keys[i%len(keys)]}); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			s := c.Stats()
			b.ReportMetric(float64(s.Ops)/float64(s.Requests), "ops/request")
		})
	}
}

// BenchmarkRead reads the answer to an acquire with two limits.
func BenchmarkRead(b *testing.B) {
	o := asked()[3]
	text := []byte(`{"allowed":true,"limits":[{"window":"1m","max":15,"count":4,"remaining":11},` +
		`{"window":"24h","max":50,"count":15,"remaining":35}],"retry_after_ms":0,"source":"memory"}`)
	var p fastjson.Parser
	b.ReportAllocs()
	for b.Loop() {
		if r := o.ReadWith(&p, text); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

// BenchmarkBody encodes an acquire with two limits.
func BenchmarkBody(b *testing.B) {
	o := asked()[3]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Body(); err != nil {
			b.Fatal(err)
		}
	}
}
