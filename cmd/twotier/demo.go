package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/demo"
	"twotier.dev/twotier/internal/retry"
)

const (
	demoNodes = 3
	// demoMemory is the --max-memory of each node.
	demoMemory = 256 << 20
	// silent is above the level of all messages.
	silent = slog.LevelError + 1
)

// demoListens are the addresses of the nodes where those are free. Tests have their own.
var demoListens = [demoNodes]string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"}

const demoText = `A cluster for a first look: three nodes that gossip and serve HTTP on this
machine only, at the ports 8080 to 8082 where those are free, over one store in
memory. Nothing outlives it. Ctrl-C ends it.

It tells a story of six chapters, here and on the page: an attacker among the
traffic, a rule in shadow, the rule on, a ban, a node that is killed, and the
node back with all counts. Buttons on the page repeat a chapter or go on.`

type demoOptions struct {
	length time.Duration // 0 means until it is stopped
	rate   int
	step   time.Duration // of the story; 0 means none
}

func demoCommand(o cli.IO) *cobra.Command {
	var (
		opt    demoOptions
		length string
		step   string
	)
	cmd := &cobra.Command{
		Use: "demo [--for DURATION] [--rate N] [--step DURATION]", Long: demoText,
		Short:   "three nodes, traffic and a story in one process, for a first look",
		Args:    cli.RefuseArgs,
		Example: "twotier demo\ntwotier demo --for 30s\ntwotier demo --step 0s",
	}
	cmd.Flags().StringVar(&length, "for", "", "end by itself after a `DURATION`, such as 30s")
	cmd.Flags().IntVar(&opt.rate, "rate", 300,
		"`NUMBER` of events a second over all nodes, 1 to 10000")
	cmd.Flags().StringVar(&step, "step", "12s",
		"`DURATION` of a chapter of the story; 0s tells none, and the rule is on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := opt.check(length, step); err != nil {
			return &cli.UsageError{Err: err}
		}
		return showDemo(cmd.Context(), opt, o.Stdout, o.Stderr)
	}
	return cmd
}

// check validates the flags and parses the durations.
func (o *demoOptions) check(length, step string) (err error) {
	if o.rate < 1 || o.rate > 10_000 {
		return fmt.Errorf("--rate: %d is not a number from 1 to 10000", o.rate)
	}
	if o.step, err = config.ParseDuration(step); err != nil {
		return fmt.Errorf("--step: %w", err)
	}
	if length == "" {
		return nil
	}
	if o.length, err = config.ParseDuration(length); err != nil {
		return fmt.Errorf("--for: %w", err)
	}
	return nil
}

// showDemo runs a demo until ctx is done or opt.length has passed.
func showDemo(ctx context.Context, opt demoOptions, stdout, stderr io.Writer) (err error) {
	fmt.Fprintf(stdout, "starting %d nodes\n", demoNodes)
	token, rules := rand.Text(), demo.Document("on")
	if opt.step > 0 {
		rules = demo.Document("off")
	}
	nodes := newDemoCluster(token, rules, stderr)
	story := demo.NewStory(demo.StoryOptions{Step: opt.step, Token: token, Cluster: nodes,
		Out: stdout})
	if opt.step > 0 {
		nodes.story = story
	}
	defer func() { err = errors.Join(err, nodes.close()) }()
	if err := nodes.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it was starting
		}
		return err
	}
	clients, err := demo.Clients(nodes.urls())
	if err != nil {
		return err
	}
	traffic := demo.NewTraffic(clients, opt.rate)
	printDemo(stdout, nodes, opt)
	traffic.Open(ctx)
	if opt.step > 0 {
		story.Open(ctx, nodes.urls(), nodes.names, traffic)
	}
	wait(ctx, opt.length)
	story.Close()
	traffic.Close()
	err = printEnd(stdout, nodes, traffic)
	for _, c := range clients {
		err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return err
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

// printDemo prints the nodes' addresses and commands to try.
func printDemo(w io.Writer, nodes *demoCluster, opt demoOptions) {
	urls := nodes.urls()
	fmt.Fprint(w, "\nthree nodes act as one counter, over one store in memory that ends with "+
		"them:\n")
	for i, s := range nodes.nodes {
		t := s.ring.Table()
		fmt.Fprintf(w, "  node %s  %s/  gossip %s, owns %d of %d partitions\n", s.cfg.Node, urls[i],
			s.ring.Gossip(),
			t.OwnedCount(t.Self()), t.Partitions())
	}
	fmt.Fprintf(w, "\nopen %s/#demo=%s in a browser: any node shows the cluster, and this link\n"+
		"has the token for the buttons and for changes\n", urls[0], nodes.token)
	fmt.Fprintf(w, "\ntraffic: %d events a second through all of them; keys user:N, logins of "+
		"ip:198.18.N.N, of which\n%s is an attacker; every half minute %s is hot for a while\n",
		opt.rate, demo.Attacker, demo.HotKey)
	post := "curl -H 'Content-Type: application/json' -d"
	fmt.Fprintf(w, "\ntry, in another terminal: count through one node, read from another, ask "+
		"for what a limit leaves\n"+
		"  %s '{\"key\":\"alice\",\"n\":3}' %s/v1/add\n"+
		"  curl '%s/v1/count?key=alice&window=1m,37m,24h'\n"+
		"  %s '{\"key\":\"alice\",\"limits\":[{\"window\":\"1m\",\"max\":15}]}' %s/v1/acquire\n"+
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
func printEnd(w io.Writer, nodes *demoCluster, traffic *demo.Traffic) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	st := traffic.Stats()
	run := nodes.running()
	said := make([]string, len(nodes.names))
	for i, name := range nodes.names {
		if run[i] == nil {
			said[i] = name + " is dead"
			continue
		}
		n, err := traffic.Ask(ctx, i)
		if err != nil {
			return err
		}
		said[i] = fmt.Sprintf("%s says %d", name, n)
	}
	fmt.Fprintf(w, "\nkey %s was counted %d times through all nodes; %s\n", demo.Key, st.Counted,
		strings.Join(said, ", "))
	if st.Uncertain > 0 {
		fmt.Fprintf(w, "%d more may have been counted: the node did not answer\n", st.Uncertain)
	}
	allowed, refused := st.Attacker.Allowed+st.Others.Allowed, st.Attacker.Refused+st.Others.Refused
	fmt.Fprintf(w, "limits allowed %d and refused %d; %d requests failed\n", allowed, refused,
		st.Failed)
	fmt.Fprint(w, "stopping all of them\n")
	return nil
}

// demoCluster is the nodes of a demo, over a Redis in this process. It implements demo.Cluster.
type demoCluster struct {
	redis *miniredis.Miniredis
	url   string // of redis
	clock sync.WaitGroup
	stop  context.CancelFunc // ends clock
	story httpapi.Story
	token string
	rules string // the first document; "" for none
	log   io.Writer

	mu    sync.Mutex
	level [demoNodes]slog.LevelVar
	nodes []*server // nil where a node was killed
	// names and addresses of the nodes, which outlive a kill.
	names, listens []string
	bound          [demoNodes]bool // whether the node has had its address
}

// newDemoCluster returns a cluster without nodes, whose admin token and rules are given.
func newDemoCluster(token, rules string, log io.Writer) *demoCluster {
	d := &demoCluster{redis: miniredis.NewMiniRedis(), stop: func() {}, token: token,
		rules: rules, log: log, nodes: make([]*server, demoNodes)}
	for i := range demoNodes {
		d.names = append(d.names, string(rune('a'+i)))
		d.listens = append(d.listens, demoListens[i])
	}
	return d
}

// open starts Redis, and the nodes one after the other, each as serve does. If it fails, the caller
// must still close the cluster.
func (d *demoCluster) open(ctx context.Context) error {
	password := rand.Text()
	d.redis.RequireAuth(password)
	if err := d.redis.Start(); err != nil {
		return err
	}
	d.url = fmt.Sprintf("redis://:%s@%s", password, d.redis.Addr())
	ticking, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.clock.Go(func() {
		for retry.Pause(ticking, time.Second) {
			d.redis.FastForward(time.Second) // keys don't expire by themselves
		}
	})
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
	cfg.MaxMemory, cfg.Redis, cfg.AdminToken = demoMemory, d.url, d.token
	for _, other := range d.nodes {
		if other != nil {
			cfg.Join = append(cfg.Join, other.ring.Gossip())
		}
	}
	level := &d.level[at]
	level.Set(slog.LevelWarn)
	log := slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: level}))
	s, err := newServer(ctx, cfg, d.story, log.With("node", cfg.Node), io.Discard)
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
		d.level[at].Set(silent)
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
		d.level[i].Set(silent) // some find that others have stopped
		done.Go(func() { errs[i] = s.close() })
	}
	done.Wait()
	d.stop()
	d.clock.Wait()
	d.redis.Close()
	return errors.Join(errs...)
}

// kill ends the server as SIGKILL ends its process, for demonstrations: it hands over nothing,
// flushes nothing and leaves the cluster without an announcement. Connections are cut, and what was
// only in memory is lost.
func (s *server) kill() {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	if s.ring != nil {
		_ = s.ring.Abandon() // the other members find out
	}
	_ = s.closeDoors(dead)
	s.history.Close()
	s.holds.Close()
	_ = s.closeParts(dead, dead) // its error lists the lost counts
}
