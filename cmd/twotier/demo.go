package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/demo"
	"twotier.dev/twotier/internal/embedded"
)

const (
	demoNodes = 3
	// demoMemory bounds the memory of the shared store, and is the --max-memory of each node.
	demoMemory = 256 << 20
	firstPort  = 8080
)

const demoText = `A cluster for a first look: three nodes that gossip and serve HTTP on this
machine only, at the ports 8080 to 8082 where those are free, over one store in
memory. Nothing outlives it. Ctrl-C ends it.`

// demoOptions are the flags of a demo.
type demoOptions struct {
	length time.Duration // 0 means until it is stopped
	rate   int
}

func demoCommand(o cli.IO) *cobra.Command {
	var (
		opt    demoOptions
		length string
	)
	cmd := &cobra.Command{
		Use: "demo [--for DURATION] [--rate N]", Long: demoText,
		Short:   "three nodes and some traffic in one process, for a first look",
		Example: "twotier demo\ntwotier demo --for 30s",
	}
	cmd.Flags().StringVar(&length, "for", "", "end by itself after a `DURATION`, such as 30s")
	cmd.Flags().IntVar(&opt.rate, "rate", 300,
		"`NUMBER` of events a second over all nodes, 1 to 10000")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := opt.check(args, length); err != nil {
			return &cli.UsageError{Err: err}
		}
		return showDemo(cmd.Context(), opt, o.Stdout, o.Stderr)
	}
	return cmd
}

// check validates the flags and parses the length.
func (o *demoOptions) check(args []string, length string) (err error) {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case o.rate < 1 || o.rate > 10_000:
		return fmt.Errorf("--rate: %d is not a number from 1 to 10000", o.rate)
	case length == "":
		return nil
	}
	if o.length, err = config.ParseDuration(length); err != nil {
		return fmt.Errorf("--for: %w", err)
	}
	return nil
}

// showDemo runs a demo until ctx is done or opt.length has passed.
func showDemo(ctx context.Context, opt demoOptions, stdout, stderr io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	fmt.Fprintf(stdout, "starting %d nodes\n", demoNodes)
	nodes, err := openDemo(ctx, log)
	defer func() { err = errors.Join(err, closeDemo(nodes)) }()
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it was starting
		}
		return err
	}
	var urls []string
	for _, s := range nodes {
		urls = append(urls, "http://"+s.http.Addr().String())
	}
	traffic, err := demo.New(demo.Options{Servers: urls, Rate: opt.rate})
	if err != nil {
		return err
	}
	printDemo(stdout, nodes, urls, opt)
	traffic.Open(ctx)
	wait(ctx, opt.length)
	traffic.Close()
	return printEnd(stdout, nodes, traffic)
}

// wait waits until ctx is done, but no longer than d if d is more than 0.
func wait(ctx context.Context, d time.Duration) {
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	<-ctx.Done()
}

// openDemo starts the nodes one after the other, each as serve does. If it fails, the caller must
// close the nodes that it returns.
func openDemo(ctx context.Context, log *slog.Logger) (nodes []*server, err error) {
	shared := newInProcess(embedded.Options{MaxMemory: demoMemory})
	seed := placement(config.Config{}).Seed // without Redis the nodes can't share one
	for i := range demoNodes {
		cfg, err := config.Parse(nil, nil)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nodes, err
		}
		cfg.Node = string(rune('a' + i))
		cfg.Listen, cfg.Gossip = preferPort(firstPort+i), "127.0.0.1:0"
		cfg.MaxMemory, cfg.HashSeed = demoMemory, &seed
		if i > 0 {
			cfg.Join = []string{nodes[0].ring.Gossip()}
		}
		s, err := newServer(ctx, cfg, shared, log.With("node", cfg.Node), io.Discard)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, s)
		if err := s.open(ctx); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// preferPort returns the loopback address with the given port if that is free, and with port 0
// otherwise.
func preferPort(port int) string {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close() // nothing was accepted
	return address
}

// closeDemo stops all nodes at the same time: no node is left to take over partitions.
func closeDemo(nodes []*server) error {
	errs := make([]error, len(nodes))
	var done sync.WaitGroup
	for i, s := range nodes {
		done.Go(func() { errs[i] = s.close() })
	}
	done.Wait()
	return errors.Join(errs...)
}

// printDemo prints the nodes' addresses and commands to try.
func printDemo(w io.Writer, nodes []*server, urls []string, opt demoOptions) {
	fmt.Fprint(w, "\nthree nodes act as one counter, over one store in memory that ends with "+
		"them:\n")
	for i, s := range nodes {
		t := s.ring.Table()
		fmt.Fprintf(w, "  node %s  %s/  gossip %s, owns %d of %d partitions\n", s.cfg.Node, urls[i],
			s.ring.Gossip(),
			t.OwnedCount(t.Self()), t.Partitions())
	}
	fmt.Fprintf(w, "\nopen %s/ in a browser: any node shows the cluster\n", urls[0])
	fmt.Fprintf(w, "\ntraffic: %d events a second through all of them; keys user:N, limited "+
		"keys phone:NNN (15 a minute),\n"+
		"every half minute %s is hot for a while\n", opt.rate, demo.HotKey)
	post := "curl -H 'Content-Type: application/json' -d"
	fmt.Fprintf(w, "\ntry, in another terminal: count through one node, read from another, ask "+
		"for what a limit leaves\n"+
		"  %s '{\"key\":\"alice\",\"n\":3}' %s/v1/add\n"+
		"  curl '%s/v1/count?key=alice&window=1m,37m,24h'\n"+
		"  %s '{\"key\":\"phone:000\",\"limits\":[{\"window\":\"1m\",\"max\":15}]}' %s/v1/acquire\n"+
		"  curl '%s/v1/top?n=5'\n",
		post, urls[0], urls[1], post, urls[2], urls[0])
	fmt.Fprintf(w, "  twotier cluster --server %s    # or go run ./cmd/twotier cluster ...\n",
		urls[0])
	if opt.length > 0 {
		fmt.Fprintf(w, "\nit ends by itself after %s, or with Ctrl-C\n", opt.length)
		return
	}
	fmt.Fprint(w, "\nCtrl-C ends it\n")
}

// askTimeout bounds the final queries to the nodes.
const askTimeout = 30 * time.Second

// printEnd prints the count of one key as each node reports it, and the totals of the traffic.
func printEnd(w io.Writer, nodes []*server, traffic *demo.Traffic) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	counts, err := traffic.Ask(ctx)
	if err != nil {
		return err
	}
	st := traffic.Stats()
	said := make([]string, len(counts))
	for i, n := range counts {
		said[i] = fmt.Sprintf("%s says %d", nodes[i].cfg.Node, n)
	}
	fmt.Fprintf(w, "\nkey %s was counted %d times through all nodes; %s\n", demo.Key, st.Counted,
		strings.Join(said, ", "))
	fmt.Fprintf(w, "limits allowed %d and refused %d; %d requests failed\n", st.Allowed, st.Refused,
		st.Failed)
	fmt.Fprint(w, "stopping all three\n")
	return nil
}
