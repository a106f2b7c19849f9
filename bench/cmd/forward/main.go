package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/pace"
	"twotier/bench/proc"
	"twotier/bench/report"
	"twotier/bench/rival"
	"twotier/httpapi/client"
	"twotier/syncer"
)

type options struct {
	duration time.Duration
	rounds   int
	out      string
}

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", 4*time.Second, "time of each run")
	flag.IntVar(&o.rounds, "rounds", 3, "runs of each way; the middle one by processor time counts")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	rival.Main(func(ctx context.Context, env *rival.Env) error { return run(ctx, env, o) })
}

const (
	nodes = 3
	space = 1000 // keys, all of one node
)

// Point is one way of adding.
type Point struct {
	Way string `json:"way"`
	// PerCall is how many adds a request has, 0 as many as there are to send.
	PerCall int `json:"adds_per_request"`
	// Rate is adds per second, ServiceCPU processor time of all nodes for an add in microseconds, Forwarded the share of adds that one
	// node sent to another.
	Rate       float64      `json:"adds_per_second"`
	ServiceCPU float64      `json:"service_cpu_us"`
	Forwarded  float64      `json:"forwarded"`
	Latency    pace.Latency `json:"latency_us"`
}

func run(ctx context.Context, env *rival.Env, o options) (err error) {
	s, err := rival.Twotier("twotier", nodes, rival.TwoTier, "--hot-rate", "0").Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	keys, err := keysOf(ctx, s.Servers[0])
	if err != nil {
		return err
	}
	b := bench{o, s, keys}
	var points []Point
	for _, perCall := range []int{1, 100} {
		for _, way := range []string{"owner", "forwarded", "client"} {
			p, err := b.middle(ctx, way, perCall)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			log.Printf("%-10s %3d per request: %8.0f adds/s, %6.2f µs of all nodes an add, p99 %d µs, %.0f %% forwarded",
				p.Way, p.PerCall, p.Rate, p.ServiceCPU, p.Latency.P99, 100*p.Forwarded)
			points = append(points, p)
		}
	}
	fmt.Print(markdown(points))
	return report.Report{
		Name: "forward", Title: "What it costs to ask another node than the owner",
		Command: fmt.Sprintf("go run ./cmd/forward -duration %v -rounds %d", o.duration, o.rounds),
		Data:    map[string]any{"points": points}, Body: markdown(points),
	}.Write(ctx, o.out)
}

// keysOf returns keys that a node owns.
func keysOf(ctx context.Context, s *proc.Server) (keys []uint64, err error) {
	var view struct {
		Partitions int                   `json:"partitions"`
		Members    []struct{ Self bool } `json:"members"`
		Owners     []int                 `json:"owners"`
		HashSeed   uint64                `json:"hash_seed"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Base+"/v1/cluster?owners=true", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&view); err != nil {
		return nil, err
	}
	place := syncer.Placement{Partitions: view.Partitions, Seed: view.HashSeed}
	for k := uint64(1); len(keys) < space && k < 100*space; k++ {
		if p := place.Of(nil, []byte(load.Key(k))); p < len(view.Owners) && view.Members[view.Owners[p]].Self {
			keys = append(keys, k)
		}
	}
	if len(keys) < space || len(view.Members) != nodes {
		return nil, fmt.Errorf("%d members, %d keys of the first", len(view.Members), len(keys))
	}
	return keys, nil
}

type bench struct {
	o    options
	s    *rival.Stand
	keys []uint64
}

// middle runs a way a few times and returns the run whose processor time is in the middle.
func (b *bench) middle(ctx context.Context, way string, perCall int) (Point, error) {
	var all []Point
	for range b.o.rounds {
		p, err := b.once(ctx, way, perCall)
		if err != nil {
			return p, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y Point) int { return int(1000 * (x.ServiceCPU - y.ServiceCPU)) })
	return all[len(all)/2], nil
}

func (b *bench) once(ctx context.Context, way string, perCall int) (p Point, err error) {
	workers, closeAll, err := b.workers(way, perCall)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	sent := func() (n float64, err error) {
		for _, s := range b.s.Servers {
			v, err := s.Metric(ctx, `twotier_forwarded_total{direction="out"}`)
			if err != nil {
				return 0, err
			}
			n += v
		}
		return n, nil
	}
	if err := pace.Run(ctx, pace.Options{Duration: b.o.duration / 4}, workers).Err(); err != nil { // until all is warm
		return p, err
	}
	before, err := measure.Of(ctx, b.s)
	if err != nil {
		return p, err
	}
	first, err := sent()
	if err != nil {
		return p, err
	}
	r := pace.Run(ctx, pace.Options{Duration: b.o.duration}, workers)
	last, err := sent()
	if err := errors.Join(err, r.Err()); err != nil {
		return p, err
	}
	after, err := measure.Of(ctx, b.s)
	adds := float64(r.Calls) * float64(perCall)
	return Point{
		Way: way, PerCall: perCall, Rate: adds / r.Seconds, ServiceCPU: after.Since(before).Service * 1e6 / adds,
		Forwarded: (last - first) / adds, Latency: r.Latency,
	}, err
}

// workers asks the owner, another node, or the client, from as many goroutines as it takes.
func (b *bench) workers(way string, perCall int) (list []pace.Worker, closeAll func() error, err error) {
	n := 64
	if perCall > 1 {
		n = 16
	}
	if way == "client" {
		return b.routed(n, perCall)
	}
	addr := b.s.Servers[0].Addr
	if way == "forwarded" {
		addr = b.s.Servers[1].Addr
	}
	var conns []*load.Conn
	closeAll = func() (err error) {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	op := load.OpAdd
	if perCall > 1 {
		op = load.OpBatch
	}
	for i := range n {
		c, err := load.Dial(addr)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		conns = append(conns, c)
		req, at := load.NewRequest(addr, op, perCall, false), i*len(b.keys)/n
		list = append(list, pace.Worker{
			Next: func() (time.Duration, bool) {
				for k := range perCall {
					at = (at + 1) % len(b.keys)
					req.SetKey(k, b.keys[at])
				}
				return 0, true
			},
			Do: func() error { return c.Do(req) },
		})
	}
	return list, closeAll, nil
}

// routed asks by way of the client, which was told of a node that does not own the keys.
func (b *bench) routed(n, perCall int) (list []pace.Worker, closeAll func() error, err error) {
	c, err := client.New(client.Options{Addresses: []string{b.s.Servers[1].Addr}})
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		at := i * len(b.keys) / n
		ops := make([]client.Op, perCall)
		list = append(list, pace.Worker{
			Next: func() (time.Duration, bool) {
				for k := range ops {
					at = (at + 1) % len(b.keys)
					ops[k] = client.Op{Add: &client.AddRequest{Key: load.Key(b.keys[at])}}
				}
				return 0, true
			},
			Do: func() error { return b.add(c, ops) },
		})
	}
	return list, func() error { return c.Close(context.Background()) }, nil
}

func (b *bench) add(c *client.Client, ops []client.Op) error {
	if len(ops) == 1 {
		_, err := c.Add(context.Background(), *ops[0].Add)
		return err
	}
	results, err := c.Batch(context.Background(), ops)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return err
}

func markdown(points []Point) string {
	rows := make([][]string, len(points))
	base := map[int]Point{}
	for _, p := range points {
		if p.Way == "owner" {
			base[p.PerCall] = p
		}
	}
	for i, p := range points {
		rows[i] = report.Cells("%s|%d|%.0f|%.2f|%.2f|%d|%d|%.0f %%", p.Way, p.PerCall, p.Rate, p.ServiceCPU, p.ServiceCPU/base[p.PerCall].ServiceCPU,
			p.Latency.P50, p.Latency.P99, 100*p.Forwarded)
	}
	return strings.TrimLeft(text, "\n") + report.Table([]string{
		"asked", "adds per request", "adds/s", "CPU µs of all nodes an add", "of the owner's", "p50 µs", "p99 µs", "forwarded",
	}, rows)
}

const text = `
Three nodes over one Redis, adds to 1,000 keys of one of them, closed loops of 64 callers (16 with batches). *owner* asks the node that
owns the keys, *forwarded* another one, which sends on to the owner whatever waits together. *client* is the Go client, told of
that other node only: it learns who owns what, and sends what its callers ask at the same time in one request. The processor time is that of all three
nodes, with their flushes to Redis; generator and Redis share the two cores with them.

`
