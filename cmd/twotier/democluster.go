package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/embedded"
)

// demoCluster is the nodes of a demo over one store in memory. It implements demo.Cluster.
type demoCluster struct {
	shared *inProcess
	token  string
	rules  string // the first document; "" for none
	seed   uint64
	log    *slog.Logger

	mu    sync.Mutex
	nodes []*server // nil where a node was killed
	// names and addresses of the nodes, which outlive a kill.
	names, listens []string
	bound          [demoNodes]bool // whether the node has had its address
}

// newDemoCluster returns a cluster without nodes, whose admin token and rules are given.
func newDemoCluster(token, rules string, log *slog.Logger) *demoCluster {
	d := &demoCluster{shared: newInProcess(), token: token, rules: rules, log: log,
		nodes: make([]*server, demoNodes)}
	d.shared.counts = embedded.New(embedded.Options{MaxMemory: demoMemory})
	d.seed = placement(config.Config{}).Seed // without Redis the nodes can't share one
	for i := range demoNodes {
		d.names = append(d.names, string(rune('a'+i)))
		d.listens = append(d.listens, demoListens[i])
	}
	return d
}

// open starts the nodes one after the other, each as serve does. If it fails, the caller must still
// close the cluster.
func (d *demoCluster) open(ctx context.Context) error {
	for i := range d.nodes {
		if err := d.Start(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// urls returns the addresses of the nodes.
func (d *demoCluster) urls() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, address := range d.listens {
		list = append(list, "http://"+address)
	}
	return list
}

// Start implements demo.Cluster.
func (d *demoCluster) Start(ctx context.Context, at int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes[at] != nil {
		return nil
	}
	err := d.startLocked(ctx, at)
	if errors.Is(err, errTaken) && !d.bound[at] {
		d.listens[at] = "127.0.0.1:0"
		err = d.startLocked(ctx, at)
	}
	return err
}

func (d *demoCluster) startLocked(ctx context.Context, at int) error {
	cfg, err := config.Parse(nil, nil)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	cfg.Node, cfg.Listen, cfg.Gossip = d.names[at], d.listens[at], "127.0.0.1:0"
	cfg.MaxMemory, cfg.HashSeed, cfg.AdminToken = demoMemory, &d.seed, d.token
	for _, other := range d.nodes {
		if other != nil {
			cfg.Join = append(cfg.Join, other.ring.Gossip())
		}
	}
	s, err := newServer(ctx, cfg, d.shared, d.log.With("node", cfg.Node), io.Discard)
	if err != nil {
		return err
	}
	if at == 0 && d.rules != "" {
		err = s.rules.Offer([]byte(d.rules), "twotier demo", false)
	}
	if err == nil {
		err = s.open(ctx)
	}
	if err != nil {
		s.kill() // nobody has counted through it
		return err
	}
	d.nodes[at] = s
	d.listens[at], d.bound[at] = s.http.Addr().String(), true // a killed node comes back there
	return nil
}

// Kill implements demo.Cluster.
func (d *demoCluster) Kill(at int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes[at] != nil {
		d.nodes[at].kill()
		d.nodes[at] = nil
	}
	return nil
}

// KeyOf implements demo.Cluster.
func (d *demoCluster) KeyOf(at int, prefix string) (key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const most = 10_000 // more than enough if the node owns any partition
	for i := range most {
		key = fmt.Sprint(prefix, i)
		s := d.nodes[at]
		if s == nil || s.ring.Table().OwnedBySelf(s.store.place.Of([]byte("default"),
			[]byte(key))) {
			break
		}
	}
	return key
}

// running returns the nodes that run, by their indexes.
func (d *demoCluster) running() map[int]*server {
	d.mu.Lock()
	defer d.mu.Unlock()
	run := map[int]*server{}
	for i, s := range d.nodes {
		if s != nil {
			run[i] = s
		}
	}
	return run
}

// close stops all nodes at the same time: no node is left to take over partitions.
func (d *demoCluster) close() error {
	run := d.running()
	errs := make([]error, demoNodes)
	var done sync.WaitGroup
	for i, s := range run {
		done.Go(func() { errs[i] = s.close() })
	}
	done.Wait()
	return errors.Join(errs...)
}
