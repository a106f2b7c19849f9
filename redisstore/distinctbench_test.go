package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// BenchmarkDistinctBytes reports what keys cost in memory, and in Redis, that have so many
// different values over a day.
func BenchmarkDistinctBytes(b *testing.B) {
	for _, n := range []int{1, 3, 30, 300, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := redistest.Start(b)
			store := open(b, redisstore.Options{URL: server.URL()})
			const keys = 20
			for b.Loop() {
				flushAll(b, server)
				e := distinctOver(b, store, 0)
				now := time.Now().UnixMilli()
				var res distinct.Result
				for i := range n {
					for k := range keys {
						op := &distinct.Op{Key: fmt.Append(nil, "key", k),
							TS:     now - int64(n-i)*(86_400_000/int64(n)),
							Hashes: []uint64{e.Hash(fmt.Append(nil, i))}}
						must.Succeed(b, e.Do(b.Context(), op, &res, false))
					}
				}
				must.Succeed(b, e.Flush(b.Context()))
				b.ReportMetric(float64(e.Stats().Bytes)/keys, "B/key")
				used := int64(0)
				for k := range keys {
					key := fmt.Append(nil, "key", k)
					of := store.Placement().Of(nil, key)
					name := fmt.Sprintf("tt:{p%d}!d:default:%s", of, key)
					bytes, err := server.Do("MEMORY", "USAGE", name, "SAMPLES", "0").Int64()
					must.Succeed(b, err)
					used += bytes
				}
				b.ReportMetric(float64(used)/keys, "Redis-B/key")
				must.Succeed(b, e.Close(b.Context()))
			}
		})
	}
}
