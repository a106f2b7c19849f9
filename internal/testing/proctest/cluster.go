package proctest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
)

// Redis holds the counts of nodes: a server, a Redis Cluster, or servers behind sentinels.
type Redis interface {
	// URL is the value of --redis.
	URL() string
	// Client returns a client that reads without going through a node, closed with the test.
	Client(t testing.TB) redis.UniversalClient
}

// Cluster is several nodes over one Redis, or a single one, and the ledger of their traffic.
type Cluster struct {
	T       *testing.T
	Program *Program
	URL     string // of Redis, for the nodes
	Direct  redis.UniversalClient
	Ledger  *Ledger
	// Partitions is the number of partitions of the nodes.
	Partitions int
	Args       []string
	// Place returns where node i runs; nil is for a single node that is no member of a cluster.
	Place func(i int) Place
	Nodes map[int]*Process // the running ones, by number
}

// Place is where a node of a cluster runs.
type Place struct {
	Options Options
	Gossip  string
}

// Loopback gives all nodes of a cluster a separate loopback address for gossip.
func Loopback() func(i int) Place {
	host := Host()
	return func(int) Place { return Place{Gossip: host + ":0"} }
}

// NewCluster returns a cluster without nodes. The nodes get these flags.
func NewCluster(t *testing.T, p *Program, r Redis, at func(i int) Place, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{T: t, Program: p, URL: r.URL(), Direct: r.Client(t), Ledger: NewLedger(),
		Partitions: twotier.DefaultPartitions, Args: args, Place: at, Nodes: map[int]*Process{}}
	if i := slices.Index(args, "--partitions"); i >= 0 {
		c.Partitions, _ = strconv.Atoi(args[i+1])
	}
	return c
}

// Grow starts the first n nodes and waits until they are one cluster.
func (c *Cluster) Grow(n int) {
	c.T.Helper()
	for i := range n {
		c.Serve(i)
	}
	c.Settled()
}

// Command returns the flags of node i, which joins all running nodes.
func (c *Cluster) Command(i int) []string {
	args := []string{"--redis", c.URL}
	if c.Place != nil {
		args = append(args, "--node", fmt.Sprint("n", i), "--gossip", c.Place(i).Gossip)
	}
	var seeds []string
	for _, j := range c.Running() {
		seeds = append(seeds, c.Nodes[j].Gossip)
	}
	if c.Place != nil && len(seeds) > 0 {
		args = append(args, "--join", strings.Join(seeds, ","))
	}
	return append(args, c.Args...)
}

// Serve starts node i.
func (c *Cluster) Serve(i int) *Process {
	c.T.Helper()
	var opt Options
	if c.Place != nil {
		opt = c.Place(i).Options
	}
	c.Nodes[i] = c.Program.Serve(c.T, opt, c.Command(i)...)
	return c.Nodes[i]
}

// Running returns the numbers of the running nodes.
func (c *Cluster) Running() (all []int) {
	for i := range c.Nodes {
		all = append(all, i)
	}
	slices.Sort(all)
	return all
}

// Bases returns the base URLs of the nodes with the given numbers, or of all running nodes.
func (c *Cluster) Bases(numbers ...int) (list []string) {
	if len(numbers) == 0 {
		numbers = c.Running()
	}
	for _, i := range numbers {
		list = append(list, c.Nodes[i].Base)
	}
	return list
}

// Traffic starts clients of all running nodes. Those of a cluster retry refused requests.
func (c *Cluster) Traffic() *Traffic {
	return (&Traffic{T: c.T, Ledger: c.Ledger, Retry: c.Place != nil}).To(c.Bases()...).Start()
}

// Stop ends node i with SIGTERM.
func (c *Cluster) Stop(i int) {
	c.T.Helper()
	if status := c.Nodes[i].Stop(); status != 0 {
		c.T.Errorf("node %d: exit status %d\n%s", i, status, c.Nodes[i].Log.String())
	}
	delete(c.Nodes, i)
}

// Kill ends node i with SIGKILL.
func (c *Cluster) Kill(i int) {
	c.Nodes[i].Kill()
	delete(c.Nodes, i)
}

// View has the fields of /v1/cluster that tests check.
type View struct {
	RingVersion uint64 `json:"ring_version"`
	Partitions  int
	Held        int
	Members     []struct {
		ID, Address, State string
		Self               bool
	}
	Owners []int
}

// Look returns the cluster as a node sees it.
func (s *Process) Look() (v View, err error) {
	err = s.Ask("/v1/cluster?owners=true", "", &v)
	return v, err
}

// Settled waits until all running nodes see exactly each other, and every partition has one owner.
func (c *Cluster) Settled() {
	c.T.Helper()
	if c.Place != nil {
		UntilNil(c.T, "the nodes are one cluster", func() error { return c.Agree(c.Running()) })
	}
}

// Agree returns nil if these nodes see exactly each other, and each partition has one owner.
func (c *Cluster) Agree(numbers []int) error {
	held, version := 0, uint64(0)
	for k, i := range numbers {
		v, err := c.Nodes[i].Look()
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
	if held != c.Partitions {
		return fmt.Errorf("%d partitions are held, want %d", held, c.Partitions)
	}
	return nil
}

// Hash returns the name of the Redis Hash of a key.
func (c *Cluster) Hash(key string) string { return Hash(c.Partitions, key) }

// Stored returns the counts of the keys in Redis.
func (c *Cluster) Stored(keys []string) (map[string]int64, error) {
	return Stored(c.Direct, c.Partitions, keys)
}

// Barrier waits until Redis holds everything acknowledged so far. With ack=memory, a crash can only
// lose counts made after this moment.
func (c *Cluster) Barrier() {
	c.T.Helper()
	want := map[string]int64{}
	for _, key := range c.Ledger.Names() {
		want[key] = c.Ledger.Of(key).Acked
	}
	c.Holds(want)
}

// Holds waits until Redis holds at least the wanted count of each key.
func (c *Cluster) Holds(want map[string]int64) {
	c.T.Helper()
	keys := slices.Collect(maps.Keys(want))
	UntilNil(c.T, "everything is flushed", func() error {
		held, err := c.Stored(keys)
		for _, key := range keys {
			if err == nil && held[key] < want[key] {
				err = fmt.Errorf("%s: Redis holds %d, want %d", key, held[key], want[key])
			}
		}
		return err
	})
}

// Settle waits until the nodes are one cluster and nothing is pending, checks the counts of each
// node and of Redis against the ledger, and prints them. An idle node may take some seconds to
// notice that Redis has lost data, so it asks more than once. It returns by how much limits were
// exceeded.
func (c *Cluster) Settle(fault string, loss int64) (excess int64) {
	c.T.Helper()
	c.Settled()
	keys := c.Ledger.Names()
	var r, missing int64
	UntilNil(c.T, fault, func() error {
		held, err := c.Same(keys)
		if err != nil {
			return err
		}
		excess = 0
		for _, key := range keys {
			if strings.HasPrefix(key, LimitPrefix) {
				excess += max(0, held[key]-Limit)
			}
		}
		r, missing, err = c.Ledger.Check(held, loss)
		return err
	})
	a, u, f := c.Ledger.Totals()
	c.T.Logf("ledger: %s: A=%d U=%d failed=%d R=%d missing=%d of L=%d; over limits: %d", fault, a,
		u, f, r, missing, loss, excess)
	return excess
}

// Same returns the counts of the keys in Redis if nothing is pending and all nodes report the same.
func (c *Cluster) Same(keys []string) (map[string]int64, error) {
	for _, i := range c.Running() {
		if n := c.Nodes[i].Pending(); n > 0 {
			return nil, fmt.Errorf("node %d: %d buckets are pending", i, n)
		}
	}
	held, err := c.Stored(keys)
	if err != nil {
		return nil, err
	}
	for _, i := range c.Running() {
		told, err := c.Nodes[i].Counted(keys)
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

// Ordinary is a set of well-behaved clients that acquire one event after the other while other
// clients misbehave. They connect from a separate loopback address.
type Ordinary struct {
	t       testing.TB
	http    *http.Client
	stop    chan struct{}
	running sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
	bad  []string
}

// ordinaryClients is the number of clients, and ordinaryPause the pause of each between requests.
const (
	ordinaryClients = 4
	ordinaryPause   = 2 * time.Millisecond
)

// StartOrdinary starts the clients against a node. From now on the test's own requests to this node
// come from their address too. They run until [Ordinary.Stop].
func StartOrdinary(t testing.TB, node *Process) *Ordinary {
	t.Helper()
	o := &Ordinary{t: t, stop: make(chan struct{}), http: NewClient()}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	o.http.Transport.(*http.Transport).DialContext = dialer.DialContext
	node.HTTP = o.http
	for range ordinaryClients {
		o.running.Go(func() { o.runClient(node.Base + "/v1/acquire") })
	}
	return o
}

func (o *Ordinary) runClient(url string) {
	for {
		select {
		case <-o.stop:
			return
		case <-time.After(ordinaryPause):
		}
		body := fmt.Sprintf(
			`{"key":"user:%d","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`,
			rand.IntN(100))
		begin := time.Now()
		status, answer, err := read(o.http.Post(url, "application/json", strings.NewReader(body)))
		o.note(time.Since(begin), status, answer, err)
	}
}

func (o *Ordinary) note(took time.Duration, status int, answer []byte, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took = append(o.took, took)
	if err != nil || status != http.StatusOK {
		o.bad = append(o.bad, fmt.Sprint(status, " ", string(answer), err))
	}
}

// Answers waits until n more requests have been answered.
func (o *Ordinary) Answers(n int) {
	o.t.Helper()
	want := o.count() + n
	Until(o.t, fmt.Sprint(n, " ordinary requests are answered"),
		func() bool { return o.count() >= want })
}

func (o *Ordinary) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.took)
}

// Stop ends the clients and returns a line about their latencies. It fails the test if a request
// was refused, or if more than one in a hundred did not arrive in time: on a busy machine a client
// may stand still in the middle of its request for as long as a server waits.
func (o *Ordinary) Stop() string {
	o.t.Helper()
	close(o.stop)
	o.running.Wait()
	late := 0
	for _, what := range o.bad {
		if strings.HasPrefix(what, fmt.Sprint(http.StatusRequestTimeout, " ")) {
			late++
		}
	}
	if len(o.bad) > late || late*100 > len(o.took) {
		o.t.Errorf("%d of %d ordinary requests were not served: %s", len(o.bad), len(o.took),
			o.bad[0])
	}
	slices.Sort(o.took)
	at := func(share float64) time.Duration {
		return o.took[min(len(o.took)-1,
			int(share*float64(len(o.took))))].Round(10 * time.Microsecond)
	}
	if len(o.took) == 0 {
		return "no ordinary requests"
	}
	return fmt.Sprintf("%d ordinary requests: median %v, p99 %v, longest %v", len(o.took), at(0.5),
		at(0.99), at(1))
}
