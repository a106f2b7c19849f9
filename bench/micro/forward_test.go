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

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/load"
	"twotier.dev/twotier/syncer"
)

const (
	forwardNodes = 3
	forwardKeys  = 1000 // all of one node
)

// BenchmarkForward measures what it costs to ask a node that doesn't own the key, compared with
// asking the owner and with the routing client, which is told only of that other node and asks
// owners itself. One operation is one add. A request has one add or a hundred.
func BenchmarkForward(b *testing.B) {
	env, remove, err := rival.Build(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = remove() })
	s, err := rival.Twotier("twotier", forwardNodes, rival.TwoTier, "--hot-rate", "0").
		Start(b.Context(), env)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	keys, err := keysOf(b.Context(), s.Servers[0])
	if err != nil {
		b.Fatal(err)
	}
	for _, perCall := range []int{1, 100} {
		for _, way := range []string{"owner", "forwarded", "client"} {
			b.Run(fmt.Sprintf("%s/adds=%d", way, perCall), func(b *testing.B) {
				benchmarkSending(b, s, keys, way, perCall)
			})
		}
	}
}

// keysOf returns keys that a node owns.
func keysOf(ctx context.Context, s *proc.Server) (keys []string, err error) {
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
	place := syncer.Placement{Partitions: view.Partitions, Seed: view.HashSeed}
	for k := uint64(1); len(keys) < forwardKeys && k < 100*forwardKeys; k++ {
		p := place.Of(nil, []byte(drive.Key(k)))
		if p < len(view.Owners) && view.Members[view.Owners[p]].Self {
			keys = append(keys, drive.Key(k))
		}
	}
	if len(keys) < forwardKeys || len(view.Members) != forwardNodes {
		return nil, fmt.Errorf("%d members, %d keys of the first", len(view.Members), len(keys))
	}
	return keys, nil
}

// benchmarkSending reports latencies, the processor time of all nodes, and how many adds one node
// has sent to another.
func benchmarkSending(b *testing.B, s *rival.Stand, keys []string, way string, perCall int) {
	send, stop, err := sender(b.Context(), s, way)
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	before, err1 := s.Usage(b.Context())
	first, err2 := forwarded(b.Context(), s)
	b.ResetTimer()
	t := load.Loop{Duration: time.Hour}.Run(b.Context(), callers(b.N, keys, perCall, send))
	b.StopTimer()
	last, err3 := forwarded(b.Context(), s)
	after, err4 := s.Usage(b.Context())
	if err := errors.Join(err1, err2, err3, err4, t.Err()); err != nil {
		b.Fatal(err)
	}
	adds := float64(t.Calls) * float64(perCall)
	b.ReportMetric(adds/t.Seconds, "adds/s")
	b.ReportMetric(after.Since(before).Service*1e6/adds, "service-us/add")
	b.ReportMetric((last-first)/adds, "forwarded/add")
	b.ReportMetric(float64(t.Latency.P50), "p50-us")
	b.ReportMetric(float64(t.Latency.P99), "p99-us")
}

// forwarded returns the number of operations that nodes have sent to each other.
func forwarded(ctx context.Context, s *rival.Stand) (n float64, err error) {
	for _, server := range s.Servers {
		v, err := server.Metric(ctx, `twotier_forwarded_total{direction="out"}`)
		if err != nil {
			return 0, err
		}
		n += v
	}
	return n, nil
}

// callers go through the keys in turn, 64 at a time, 16 with batches, until n have been added to.
func callers(n int, keys []string, perCall int, send func([]string) error) (all []load.Worker) {
	workers := 64
	if perCall > 1 {
		workers = 16
	}
	var calls atomic.Int64
	for i := range workers {
		at, call := i*len(keys)/workers, make([]string, perCall)
		all = append(all, load.Worker{
			Next: func() (time.Duration, bool) {
				for k := range call {
					at = (at + 1) % len(keys)
					call[k] = keys[at]
				}
				return 0, (calls.Add(1)-1)*int64(perCall) < int64(n)
			},
			Do: func() error { return send(call) },
		})
	}
	return all
}

// sender adds to keys in one request: to their owner, to another node, or by way of the client.
func sender(ctx context.Context, s *rival.Stand,
	way string) (send func(keys []string) error, stop func(), err error) {
	if way == "client" {
		c, err := client.New(client.Options{Addresses: []string{s.Servers[1].Addr}})
		if err != nil {
			return nil, nil, err
		}
		send = func(keys []string) error { return addByClient(ctx, c, keys) }
		return send, func() { _ = c.Close(ctx) }, nil
	}
	addr := s.Servers[0].Addr
	if way == "forwarded" {
		addr = s.Servers[1].Addr
	}
	c, err := drive.Connect(addr)
	if err != nil {
		return nil, nil, err
	}
	return func(keys []string) error { return drive.PostAdds(c, keys, 0) }, c.Close, nil
}

func addByClient(ctx context.Context, c *client.Client, keys []string) error {
	if len(keys) == 1 {
		_, err := c.Add(ctx, client.AddRequest{Key: keys[0]})
		return err
	}
	ops := make([]client.Op, len(keys))
	for i, key := range keys {
		ops[i] = client.Op{Add: &client.AddRequest{Key: key}}
	}
	results, err := c.Batch(ctx, ops)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}
