package clustertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// cluster is several nodes over one Redis, and the ledger of their traffic.
type cluster struct {
	t     *testing.T
	redis string // URL
	// direct reads from Redis without going through a node.
	direct redis.UniversalClient
	l      *proctest.Ledger
	parts  int
	args   []string
	// place returns where node i listens and gossips, and within which command it runs.
	place func(i int) place
	nodes map[int]*proctest.Process // the running ones, by number
	// program is the program of the nodes.
	program *proctest.Program
}

// place is where a node runs.
type place struct {
	opt    proctest.Options
	gossip string
}

// loopback gives all nodes of a cluster a separate loopback address for gossip.
func loopback() func(i int) place {
	host := proctest.Host()
	return func(int) place { return place{gossip: host + ":0"} }
}

// startWith is start with nodes of another program.
func startWith(t *testing.T, program *proctest.Program, n int, args ...string) *cluster {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	args = append([]string{"--redis-expiry", redistest.Expiry(t, server)}, args...)
	c := newCluster(t, server.URL(), redis.NewClient(&redis.Options{Addr: server.Addr()}),
		loopback(), args...)
	c.program = program
	c.grow(n)
	return c
}

// start starts a Redis and n nodes on loopback.
func start(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	args = append([]string{"--redis-expiry", redistest.Expiry(t, server)}, args...)
	return startOn(t, server.URL(), redis.NewClient(&redis.Options{Addr: server.Addr()}),
		n, loopback(), args...)
}

// startOn starts n nodes over a Redis and waits until they are one cluster.
func startOn(t *testing.T, url string, direct redis.UniversalClient, n int, at func(int) place,
	args ...string) *cluster {
	t.Helper()
	c := newCluster(t, url, direct, at, args...)
	c.grow(n)
	return c
}

// newCluster returns a cluster without nodes.
func newCluster(t *testing.T, url string, direct redis.UniversalClient, at func(int) place,
	args ...string) *cluster {
	t.Cleanup(func() { _ = direct.Close() })
	return &cluster{
		t: t, redis: url, direct: direct, l: proctest.NewLedger(), parts: twotier.DefaultPartitions,
		args: args, place: at, program: program,
		nodes: map[int]*proctest.Process{},
	}
}

// grow starts the first n nodes and waits until they are one cluster.
func (c *cluster) grow(n int) {
	c.t.Helper()
	for i := range n {
		c.serve(i)
	}
	c.settled()
}

// command returns the arguments of node i, which joins all running nodes.
func (c *cluster) command(i int) []string {
	args := []string{"--node", fmt.Sprint("n", i), "--redis", c.redis, "--gossip",
		c.place(i).gossip}
	var seeds []string
	for _, j := range c.running() {
		seeds = append(seeds, c.nodes[j].Gossip)
	}
	if len(seeds) > 0 {
		args = append(args, "--join", strings.Join(seeds, ","))
	}
	return append(args, c.args...)
}

// serve starts node i.
func (c *cluster) serve(i int) *proctest.Process {
	c.t.Helper()
	c.nodes[i] = c.program.Serve(c.t, c.place(i).opt, c.command(i)...)
	return c.nodes[i]
}

// running returns the numbers of the running nodes.
func (c *cluster) running() []int {
	var all []int
	for i := range c.nodes {
		all = append(all, i)
	}
	slices.Sort(all)
	return all
}

// bases returns the base URLs of the nodes with the given numbers, or of all running nodes.
func (c *cluster) bases(numbers ...int) (list []string) {
	if len(numbers) == 0 {
		numbers = c.running()
	}
	for _, i := range numbers {
		list = append(list, c.nodes[i].Base)
	}
	return list
}

// traffic starts clients of all running nodes, which retry refused requests.
func (c *cluster) traffic() *proctest.Traffic {
	return (&proctest.Traffic{T: c.t, Ledger: c.l, Retry: true}).To(c.bases()...).Start()
}

// stop ends node i with SIGTERM.
func (c *cluster) stop(i int) {
	c.t.Helper()
	if status := c.nodes[i].Stop(); status != 0 {
		c.t.Errorf("node %d: exit status %d\n%s", i, status, c.nodes[i].Log.String())
	}
	delete(c.nodes, i)
}

// kill ends node i with SIGKILL.
func (c *cluster) kill(i int) {
	c.nodes[i].Kill()
	delete(c.nodes, i)
}

// view has the fields of /v1/cluster that tests check.
type view struct {
	RingVersion uint64 `json:"ring_version"`
	Partitions  int
	Held        int
	Members     []struct {
		ID, Address, State string
		Self               bool
	}
	Owners []int
}

// look returns the cluster as a node sees it.
func look(p *proctest.Process) (v view, err error) {
	status, body, err := p.TryGet("/v1/cluster?owners=true")
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d: %s", status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

// settled waits until all running nodes see exactly each other, and every partition has one owner.
func (c *cluster) settled() {
	c.t.Helper()
	proctest.UntilNil(c.t, "the nodes are one cluster",
		func() error { return c.agree(c.running()) })
}

// agree returns nil if these nodes see exactly each other, and each partition has one owner.
func (c *cluster) agree(numbers []int) error {
	held, version := 0, uint64(0)
	for k, i := range numbers {
		v, err := look(c.nodes[i])
		if err != nil {
			return err
		}
		if k == 0 {
			version = v.RingVersion
		}
		held += v.Held
		if len(v.Members) != len(numbers) || v.RingVersion != version {
			return fmt.Errorf("node %d sees %+v", i, v.Members)
		}
		for _, m := range v.Members {
			if m.State != "alive" {
				return fmt.Errorf("node %d sees %s %s", i, m.ID, m.State)
			}
		}
	}
	if held != c.parts {
		return fmt.Errorf("%d partitions are held, want %d", held, c.parts)
	}
	return nil
}

// stored returns the counts of the keys in Redis.
func (c *cluster) stored(keys []string) (map[string]int64, error) {
	return proctest.Stored(c.direct, c.parts, keys)
}

// barrier waits until nothing is pending anywhere and Redis holds everything acknowledged so far.
// With ack=memory, a crash can only lose counts made after this moment.
func (c *cluster) barrier() {
	c.t.Helper()
	keys := c.l.Names()
	want := map[string]int64{}
	for _, key := range keys {
		want[key] = c.l.Of(key).Acked
	}
	proctest.UntilNil(c.t, "everything is flushed", func() error {
		held, err := c.stored(keys)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if held[key] < want[key] {
				return fmt.Errorf("%s: Redis holds %d, want %d", key, held[key], want[key])
			}
		}
		return nil
	})
}

// settle waits until the nodes are one cluster and nothing is pending, checks the counts of each
// node and of Redis against the ledger, and prints them. It returns by how much limits were
// exceeded.
func (c *cluster) settle(fault string, loss int64) (excess int64) {
	c.t.Helper()
	c.settled()
	keys := c.l.Names()
	var r, missing int64
	proctest.UntilNil(c.t, fault, func() error {
		held, err := c.same(keys)
		if err != nil {
			return err
		}
		excess = 0
		for _, key := range keys {
			if strings.HasPrefix(key, proctest.LimitPrefix) {
				excess += max(0, held[key]-proctest.Limit)
			}
		}
		r, missing, err = c.l.Check(held, loss)
		return err
	})
	a, u, f := c.l.Totals()
	c.t.Logf("ledger: %s: A=%d U=%d failed=%d R=%d missing=%d of L=%d; over limits: %d", fault, a,
		u, f, r, missing, loss, excess)
	return excess
}

// same returns the counts of the keys in Redis if nothing is pending and all nodes report the same.
func (c *cluster) same(keys []string) (map[string]int64, error) {
	for _, i := range c.running() {
		if n := c.nodes[i].Pending(); n > 0 {
			return nil, fmt.Errorf("node %d: %d buckets are pending", i, n)
		}
	}
	held, err := c.stored(keys)
	if err != nil {
		return nil, err
	}
	for _, i := range c.running() {
		told, err := c.nodes[i].Counted(keys)
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, key := range keys {
			if told[key] != held[key] && len(errs) < 5 {
				errs = append(errs, fmt.Errorf("%s: node %d says %d, Redis holds %d", key, i,
					told[key], held[key]))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return held, nil
}
