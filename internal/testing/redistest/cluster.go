package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// nodeTimeout is how long a node of a cluster may be silent before others consider it dead: long
// enough for a machine that stands still for a moment, short enough to wait for a failover.
const nodeTimeout = 5 * time.Second

// Slots is the number of slots of a Redis Cluster.
const Slots = 16384

// Cluster is a Redis Cluster on loopback.
type Cluster struct {
	// Nodes are all servers: first the initial primaries, then the initial replicas. Failovers
	// change the roles.
	Nodes []*Server
	ids   map[*Server]string
}

// StartCluster starts the given number of primaries, which share the slots evenly and in order,
// each with the given number of replicas, and waits until all of them agree that the cluster is up.
// The options apply to every node.
//
// A node that doesn't answer for five seconds is considered dead. If it has a replica, a failover
// follows. If not, the cluster refuses everything until the node is back, as it does in production.
func StartCluster(t testing.TB, primaries, replicas int, opts ...Option) *Cluster {
	t.Helper()
	cfg := config{cluster: true}
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.tls {
		var err error
		// The nodes have to trust each other.
		if cfg.tlsFiles, err = writeTLSFiles(t.TempDir()); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
	c := &Cluster{ids: make(map[*Server]string)}
	for range primaries * (1 + replicas) {
		s := start(t, cfg)
		c.Nodes = append(c.Nodes, s)
		c.ids[s] = text(t, s, "CLUSTER", "MYID")
	}
	c.assign(t, primaries)
	c.meet(t)
	for i, s := range c.Nodes[primaries:] {
		must(t, s, "CLUSTER", "REPLICATE", c.ids[c.Nodes[i/replicas]])
	}
	c.WaitReady(t)
	return c
}

// assign gives each primary its share of the slots, and each node a separate epoch, so that there
// are no conflicts to resolve.
func (c *Cluster) assign(t testing.TB, primaries int) {
	t.Helper()
	for i, s := range c.Nodes {
		must(t, s, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < primaries {
			must(t, s, "CLUSTER", "ADDSLOTSRANGE", i*Slots/primaries, (i+1)*Slots/primaries-1)
		}
	}
}

// meet introduces the nodes to each other and waits until each knows all others.
func (c *Cluster) meet(t testing.TB) {
	t.Helper()
	var introduced time.Time
	introduce := func() {
		for _, s := range c.Nodes[1:] {
			must(t, c.Nodes[0], "CLUSTER", "MEET", loopback, s.port)
		}
		introduced = time.Now()
	}
	introduce()
	want := "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes)) + "\r\n"
	for _, s := range c.Nodes {
		waitFor(t, "nodes meet", func() error {
			err := infoHas(s, []any{"CLUSTER", "INFO"}, want)
			// Nodes forget a handshake that is not done within their timeout.
			if err != nil && time.Since(introduced) > 2*nodeTimeout {
				introduce()
			}
			return err
		})
	}
}

// WaitReady waits until all running nodes agree that the cluster is up and which node serves which
// slot, and until every replica is connected to its primary and known to all.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	waitFor(t, "cluster is up", func() error {
		replicas := 0
		for _, s := range c.running() {
			is, err := isReplica(s)
			if err != nil {
				return err
			}
			if is {
				replicas++
			}
		}
		first := ""
		for _, s := range c.running() {
			view, err := readyView(s, replicas)
			if err != nil {
				return err
			}
			if first == "" {
				first = view
			}
			if view != first {
				return fmt.Errorf("%s sees %s, another %s", s.Addr(), view, first)
			}
		}
		return nil
	})
}

// isReplica reports whether the server is a replica. A replica that is not in sync with its primary
// is an error.
func isReplica(s *Server) (bool, error) {
	info, err := s.Do("INFO", "replication").Text()
	if err != nil || !strings.Contains(info, "role:slave\r\n") {
		return false, err
	}
	if !strings.Contains(info, "master_link_status:up\r\n") {
		return true, fmt.Errorf("replica %s is not connected", s.Addr())
	}
	return true, nil
}

// readyView returns the server's view of which node serves which slots, in a comparable form. It is
// an error if the server doesn't consider the cluster up or doesn't know that many replicas.
func readyView(s *Server, replicas int) (string, error) {
	err := infoHas(s, []any{"CLUSTER", "INFO"}, "cluster_state:ok\r\n",
		"cluster_slots_assigned:16384\r\n")
	if err != nil {
		return "", err
	}
	ranges, err := slotRanges(s)
	if err != nil {
		return "", err
	}
	view, known := "", make(map[string]int)
	for _, r := range ranges {
		primary := r.Nodes[0].ID
		known[primary] = len(r.Nodes) - 1
		view += fmt.Sprintf("%d-%d of %s with %d; ", r.Start, r.End, primary, known[primary])
	}
	sum := 0
	for _, n := range known {
		sum += n
	}
	if sum != replicas {
		return "", fmt.Errorf("%s knows %d replicas of %d", s.Addr(), sum, replicas)
	}
	return view, nil
}

// slotRanges returns the slots that nodes serve, with the primary first.
func slotRanges(s *Server) ([]redis.ClusterSlot, error) {
	cmd := redis.NewClusterSlotsCmd(context.Background(), "CLUSTER", "SLOTS")
	err := s.send(cmd)
	return cmd.Val(), err
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// URL returns redis+cluster://, or rediss+cluster:// with TLS, with user and password if there are
// any and the addresses of all nodes.
func (c *Cluster) URL() string { return c.Nodes[0].urlOf("+cluster", c.Addrs()) }

// Client returns a client with the defaults of go-redis, closed with the test.
func (c *Cluster) Client(t testing.TB) redis.UniversalClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(),
		Username: c.Nodes[0].cfg.user, Password: c.Nodes[0].cfg.pass})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TLS returns the files that all nodes share; they are empty without the option [TLS].
func (c *Cluster) TLS() TLSFiles { return c.Nodes[0].TLS() }

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	slot, err := c.anyRunning(t).Do("CLUSTER", "KEYSLOT", key).Int()
	if err != nil {
		t.Fatalf("redistest: CLUSTER KEYSLOT: %v", err)
	}
	return slot
}

// Owner returns the primary that serves the slot now.
func (c *Cluster) Owner(t testing.TB, slot int) *Server {
	t.Helper()
	owner, err := c.owner(c.anyRunning(t), slot)
	if err != nil {
		t.Fatalf("redistest: owner of slot %d: %v", slot, err)
	}
	return owner
}

func (c *Cluster) owner(asked *Server, slot int) (*Server, error) {
	ranges, err := slotRanges(asked)
	if err != nil {
		return nil, err
	}
	for _, r := range ranges {
		if r.Start <= slot && slot <= r.End {
			return c.byID(r.Nodes[0].ID)
		}
	}
	return nil, errors.New("nobody")
}

func (c *Cluster) byID(id string) (*Server, error) {
	for s, its := range c.ids {
		if its == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("unknown node %s", id)
}

// Primaries returns the nodes that serve slots now.
func (c *Cluster) Primaries(t testing.TB) []*Server {
	t.Helper()
	ranges, err := slotRanges(c.anyRunning(t))
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	serves := make(map[string]bool)
	for _, r := range ranges {
		serves[r.Nodes[0].ID] = true
	}
	var primaries []*Server
	for _, s := range c.Nodes {
		if serves[c.ids[s]] {
			primaries = append(primaries, s)
		}
	}
	return primaries
}

// Replicas returns the replicas of a primary, which must be running.
func (c *Cluster) Replicas(t testing.TB, primary *Server) []*Server {
	t.Helper()
	lines, err := primary.Do("CLUSTER", "REPLICAS", c.ids[primary]).StringSlice()
	if err != nil {
		t.Fatalf("redistest: CLUSTER REPLICAS: %v", err)
	}
	var replicas []*Server
	for _, line := range lines {
		id, _, _ := strings.Cut(line, " ")
		s, err := c.byID(id)
		if err != nil {
			t.Fatalf("redistest: CLUSTER REPLICAS: %v", err)
		}
		replicas = append(replicas, s)
	}
	return replicas
}

func (c *Cluster) running() []*Server {
	var running []*Server
	for _, s := range c.Nodes {
		if !s.process().Exited() {
			running = append(running, s)
		}
	}
	return running
}

func (c *Cluster) anyRunning(t testing.TB) *Server {
	t.Helper()
	running := c.running()
	if len(running) == 0 {
		t.Fatal("redistest: no node of the cluster is running")
	}
	return running[0]
}

func (s *Server) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(s.Addr())
	return host, port
}
