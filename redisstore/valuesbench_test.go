package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// BenchmarkValuesBytes reports what keys cost in memory, and in Redis, that have so many different
// values over a day.
func BenchmarkValuesBytes(b *testing.B) {
	for _, n := range []int{1, 3, 30, 300, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := redistest.Start(b)
			store := open(b, redisstore.Options{URL: server.URL(),
				Placement: twotier.Placement{Partitions: 1}})
			const keys = 200
			for b.Loop() {
				flushAll(b, server)
				c, err := syncer.New(syncer.Options{Store: store, Placement: store.Placement()})
				must.Succeed(b, err)
				must.Succeed(b, c.Open(b.Context()))
				before, now := c.Stats().MemoryBytes, time.Now().UnixMilli()
				var res twotier.Result
				for k := range keys {
					check := twotier.Check{Kind: twotier.ValuesCheck, N: 1}
					check.NS, check.Key = twotier.ValuesKey(nil, fmt.Append(nil, "key", k))
					for i := range n {
						check.Values = []uint64{companions.HashValue(0, fmt.Append(nil, i))}
						op := twotier.Op{TS: now - int64(n-i)*(86_400_000/int64(n)),
							Checks: []twotier.Check{check}}
						must.Succeed(b, c.Do(b.Context(), &op, &res))
					}
				}
				must.Succeed(b, c.Flush(b.Context()))
				b.ReportMetric(float64(c.Stats().MemoryBytes-before)/keys, "B/key")
				used := int64(0)
				for k := range keys {
					name := fmt.Sprintf("tt:{p0}:@values/default:/key%d", k)
					bytes, err := server.Do("MEMORY", "USAGE", name, "SAMPLES", "0").Int64()
					must.Succeed(b, err)
					used += bytes
				}
				b.ReportMetric(float64(used)/keys, "Redis-B/key")
				must.Succeed(b, c.Close(b.Context()))
			}
		})
	}
}
