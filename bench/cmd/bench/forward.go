package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"slices"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/load"
	"twotier.dev/twotier/syncer"
)

// Forward measures what it costs to ask another node than the owner of a key, beside asking the
// owner, and beside the routing client, which asks owners itself.
type Forward struct {
	Duration time.Duration `help:"Of each run." default:"4s"`
	Rounds   int           `help:"Runs of each way; the middle one counts." default:"3"`
}

const (
	forwardNodes = 3
	forwardKeys  = 1000 // all of one node
)

// ForwardResult is what is written.
type ForwardResult struct {
	Points []ForwardPoint `json:"points"`
}

// ForwardPoint is one way of adding.
type ForwardPoint struct {
	Way string `json:"way"`
	// PerCall is how many adds a request has.
	PerCall int `json:"adds_per_request"`
	// Rate is adds per second, ServiceCPU processor time of all nodes for an add in microseconds,
	// OfOwners the same over that of asking the owner, Forwarded the share of adds that one node
	// sent to another.
	Rate       float64      `json:"adds_per_second"`
	ServiceCPU float64      `json:"service_cpu_us"`
	OfOwners   float64      `json:"of_owners"`
	Forwarded  float64      `json:"forwarded"`
	Latency    load.Latency `json:"latency_us"`
}

// Run measures every way with one add and with a hundred in a request.
func (o *Forward) Run(ctx context.Context, b *bench) (err error) {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	cluster := rival.Twotier("twotier", forwardNodes, rival.TwoTier, "--hot-rate", "0")
	s, err := cluster.Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	keys, err := keysOf(ctx, s.Servers[0])
	if err != nil {
		return err
	}
	var r ForwardResult
	for _, perCall := range []int{1, 100} {
		var owner float64
		for _, way := range []string{"owner", "forwarded", "client"} {
			p, err := o.middle(ctx, s, keys, way, perCall)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			if way == "owner" {
				owner = p.ServiceCPU
			}
			p.OfOwners = p.ServiceCPU / owner
			log.Printf("%-10s %3d per request: %8.0f adds/s, %6.2f µs of all nodes an add", way,
				perCall, p.Rate, p.ServiceCPU)
			r.Points = append(r.Points, p)
		}
	}
	return save(b, "forward", o, r)
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

// middle runs a way a few times and returns the run whose processor time is in the middle.
func (o *Forward) middle(
	ctx context.Context, s *rival.Stand, keys []string, way string, perCall int,
) (ForwardPoint, error) {
	var all []ForwardPoint
	for range o.Rounds {
		p, err := o.once(ctx, s, keys, way, perCall)
		if err != nil {
			return p, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y ForwardPoint) int {
		return cmp.Compare(x.ServiceCPU, y.ServiceCPU)
	})
	return all[len(all)/2], nil
}

func (o *Forward) once(
	ctx context.Context, s *rival.Stand, keys []string, way string, perCall int,
) (p ForwardPoint, err error) {
	send, stop, err := sender(ctx, s, way)
	if err != nil {
		return p, err
	}
	defer stop()
	workers := callers(keys, perCall, send)
	warmup := load.Loop{Duration: o.Duration / 4}
	if err := warmup.Run(ctx, workers).Err(); err != nil {
		return p, err
	}
	before, err1 := s.Usage(ctx)
	first, err2 := forwarded(ctx, s)
	t := load.Loop{Duration: o.Duration}.Run(ctx, workers)
	last, err3 := forwarded(ctx, s)
	after, err4 := s.Usage(ctx)
	adds := float64(t.Calls) * float64(perCall)
	return ForwardPoint{
		Way: way, PerCall: perCall, Rate: adds / t.Seconds,
		ServiceCPU: after.Since(before).Service * 1e6 / adds,
		Forwarded:  (last - first) / adds, Latency: t.Latency,
	}, errors.Join(err1, err2, err3, err4, t.Err(), ctx.Err())
}

// forwarded is how many operations nodes have sent to each other.
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

// callers go through the keys in turn, 64 at a time, 16 with batches.
func callers(keys []string, perCall int, send func([]string) error) (all []load.Worker) {
	n := 64
	if perCall > 1 {
		n = 16
	}
	for i := range n {
		at, call := i*len(keys)/n, make([]string, perCall)
		all = append(all, load.Worker{
			Next: func() (time.Duration, bool) {
				for k := range call {
					at = (at + 1) % len(keys)
					call[k] = keys[at]
				}
				return 0, true
			},
			Do: func() error { return send(call) },
		})
	}
	return all
}

// sender adds to keys in one request: to their owner, to another node, or by way of the client,
// which was told of that other node only.
func sender(
	ctx context.Context, s *rival.Stand, way string,
) (send func(keys []string) error, stop func(), err error) {
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
	c, err := connect(addr)
	if err != nil {
		return nil, nil, err
	}
	return func(keys []string) error { return postAdds(c, keys, 0) }, c.Close, nil
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
