package micro_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/bench/wire"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

const (
	forwardNodes = 3
	forwardKeys  = 1000 // all of one node
	// sentOut is the metric of the operations that a node has sent to others.
	sentOut = `twotier_forwarded_total{direction="out"}`
)

// forwardSizes are the numbers of operations per request for each kind of operation.
var forwardSizes = []struct {
	kind  string
	sizes []int
}{
	{"adds", []int{1, 50, 200, 1000}},
	{"acquires", []int{50, 200, 1000}},
	{"messages", []int{50, 200, 1000}},
}

// BenchmarkForward measures the cost of sending requests to a node that doesn't own the key,
// compared with sending them to the owner, and through the routing client, which starts with that
// other node only and finds the owners itself. One operation is an add, an acquire of a key with
// one limit, or a message of message control: an acquire of two keys of one node, with two limits
// each. Everything is admitted, so that no node can answer from remembered refusals. Batches of
// adds are quiet; others request each answer.
func BenchmarkForward(b *testing.B) {
	env := programs(b)
	s := start(b, rival.Twotier("twotier", forwardNodes, rival.TwoTier, "--hot-rate", "0"), env)
	keys, err := keysOf(b.Context(), s.Servers[0], forwardNodes)
	must.Succeed(b, err)
	for _, of := range forwardSizes {
		for _, size := range of.sizes {
			for _, way := range []string{"owner", "forwarded", "client"} {
				if way == "client" && of.kind != "adds" {
					continue
				}
				b.Run(fmt.Sprintf("way=%s/kind=%s/size=%d", way, of.kind, size),
					func(b *testing.B) {
						benchmarkSending(b, s, requests(of.kind, keys, size), way)
					})
			}
		}
	}
}

// keysOf returns keys of one node in a cluster of this size.
func keysOf(ctx context.Context, s *proc.Server, members int) (keys []string, err error) {
	var view struct {
		Partitions int                   `json:"partitions"`
		Members    []struct{ Self bool } `json:"members"`
		Owners     []int                 `json:"owners"`
		HashSeed   uint64                `json:"hash_seed"`
	}
	if err := s.Get(ctx, "/v1/cluster?owners=true", func(resp *http.Response) error {
		return json.NewDecoder(resp.Body).Decode(&view)
	}); err != nil {
		return nil, err
	}
	place := twotier.Placement{Partitions: view.Partitions, Seed: view.HashSeed}
	for k := uint64(1); len(keys) < forwardKeys && k < 100*forwardKeys; k++ {
		p := place.Of(nil, []byte(drive.Key(k)))
		if p < len(view.Owners) && view.Members[view.Owners[p]].Self {
			keys = append(keys, drive.Key(k))
		}
	}
	if len(keys) < forwardKeys || len(view.Members) != members {
		return nil, fmt.Errorf("%d members, %d keys of the first", len(view.Members), len(keys))
	}
	return keys, nil
}

// benchmarkSending reports latencies, the processor time of all nodes, and the number of operations
// that one node has sent to another.
func benchmarkSending(b *testing.B, s *rival.Stand, all []request, way string) {
	send, stop, err := sender(b.Context(), s, way)
	must.Succeed(b, err)
	defer stop()
	before, err1 := s.Usage(b.Context())
	first, err2 := totalOf(b.Context(), s.Servers, sentOut)
	b.ResetTimer()
	t := load.Loop{Duration: time.Hour}.Run(b.Context(), callers(b.N, all, send))
	b.StopTimer()
	last, err3 := totalOf(b.Context(), s.Servers, sentOut)
	after, err4 := s.Usage(b.Context())
	must.Succeed(b, errors.Join(err1, err2, err3, err4, t.Err()))
	ops := float64(t.Calls) * float64(len(all[0].ops))
	b.ReportMetric(ops/t.Seconds, "ops/s")
	used := after.Since(before)
	b.ReportMetric(used.Service*1e6/ops, "service-us/op")
	b.ReportMetric((last-first)/ops, "forwarded/op")
	b.ReportMetric(float64(t.Latency.P50), "p50-us")
	b.ReportMetric(float64(t.Latency.P99), "p99-us")
	reportShare(b, used)
}

// callers send the requests in turn, 64 at a time, 16 with batches, until n operations have been
// sent.
func callers(n int, all []request, send func(*request) error) (workers []load.Worker) {
	count, size := 64, len(all[0].ops)
	if size > 1 {
		count = 16
	}
	var calls atomic.Int64
	for i := range count {
		at := i * len(all) / count
		workers = append(workers, load.Worker{
			Next: func() (time.Duration, bool) {
				at = (at + 1) % len(all)
				return 0, (calls.Add(1)-1)*int64(size) < int64(n)
			},
			Do: func() error { return send(&all[at]) },
		})
	}
	return workers
}

// sender sends requests to the owner of the keys, to another node, or through the client.
func sender(ctx context.Context, s *rival.Stand,
	way string) (send func(*request) error, stop func(), err error) {
	if way == "client" {
		c, err := client.New(client.Options{Addresses: []string{s.Servers[1].Addr}})
		if err != nil {
			return nil, nil, err
		}
		send = func(r *request) error { return r.byClient(ctx, c) }
		return send, func() { _ = c.Close(ctx) }, nil
	}
	addr := s.Servers[0].Addr
	if way == "forwarded" {
		addr = s.Servers[1].Addr
	}
	c := wire.NewClient(addr)
	return func(r *request) error { return r.post(c) }, c.Close, nil
}
