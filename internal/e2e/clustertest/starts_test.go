package clustertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// starters is how many nodes start at the same time.
const starters = 4

// calm is the event in which nothing happens while nodes start.
const calm = "nothing"

// anotherSeed lists the reasons why a node ends that drew a seed after Redis had lost the seed of
// the others.
var anotherSeed = []string{"has a different hash seed", "its counts were made with hash-seed",
	"place keys by another hash seed"}

// meanwhile lists the events while nodes start. Some of them make nodes end, with one of these
// reasons in the log.
var meanwhile = map[string]struct {
	happens func(s *starts)
	reasons []string
}{
	calm: {func(*starts) {}, nil},
	"Redis stands still": {func(s *starts) {
		s.server.Pause()
		s.moment()
		s.server.Resume()
	}, nil},
	"Redis is empty again": {func(s *starts) {
		s.moment()
		s.server.Do("FLUSHALL")
	}, anotherSeed},
	"Redis is read-only": {func(s *starts) {
		s.server.Do("REPLICAOF", "127.0.0.1", "1")
		s.moment()
		s.server.Do("REPLICAOF", "NO", "ONE")
	}, nil},
	"Redis comes later": {func(s *starts) {
		s.server.Kill()
		s.moment()
		s.server.Restart(s.t)
	}, anotherSeed},
	"a node stands still": {func(s *starts) {
		s.moment()
		p := s.nodes[rand.N(starters)].current()
		p.Pause()
		s.moment()
		p.Resume()
	}, nil},
	"a node is killed": {func(s *starts) {
		s.moment()
		s.nodes[rand.N(starters)].current().Kill()
	}, []string{"status -1"}},
	"a node is stopped": {func(s *starts) {
		s.moment()
		s.nodes[rand.N(starters)].current().Terminate()
	}, []string{""}},
}

// TestStartTogether starts all nodes of a cluster at the same time over an empty Redis, during some
// other event. They become one cluster, which places keys by the seed in Redis and has one version
// of the rules that all of them brought. A node that ends is started again, as supervisors do.
// Without -long there is no other event, and they start once.
func TestStartTogether(t *testing.T) {
	starts := 1
	if *longFlag {
		starts = *startsFlag
	}
	for name, m := range meanwhile {
		if name != calm && !*longFlag {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.AOF())
			for range starts {
				server.Do("FLUSHALL")
				s := startTogether(t, server, m.reasons)
				m.happens(s)
				s.becomeOne()
				s.stop(m.reasons)
			}
		})
	}
}

// starts are nodes that start at the same time.
type starts struct {
	t      *testing.T
	server *redistest.Server
	nodes  []*supervised
}

// moment waits for as long as nodes take to start, or less.
func (s *starts) moment() { time.Sleep(rand.N(300 * time.Millisecond)) }

// startTogether starts the nodes, each of which knows the gossip addresses of all. They may log the
// reasons for which they end as errors.
func startTogether(t *testing.T, server *redistest.Server, reasons []string) *starts {
	t.Helper()
	s := &starts{t: t, server: server}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, file, 0o644, "rules: [{name: login, limits: [5/1m]}]\n")
	var addresses []string
	for range starters { // on separate hosts: a free port could be taken meanwhile
		addresses = append(addresses,
			proctest.Host()+":7946")
	}
	for i, own := range addresses {
		n := &supervised{t: t, begun: make(chan struct{}), done: make(chan struct{}),
			complaints: slices.DeleteFunc(slices.Clone(reasons),
				func(reason string) bool { return reason == "" })}
		s.nodes = append(s.nodes, n)
		t.Cleanup(n.stop)
		go n.run("--node", fmt.Sprint("n", i), "--redis", server.URL(), "--gossip", own, "--join",
			strings.Join(addresses, ","), "--rules", file)
	}
	return s
}

// becomeOne waits until the nodes are one cluster that counts as one.
func (s *starts) becomeOne() {
	s.t.Helper()
	c := &cluster{proctest.NewCluster(s.t, program, s.server, proctest.Loopback())}
	proctest.UntilNil(s.t, "the nodes are one cluster", func() error {
		for i, n := range s.nodes {
			p := n.ready()
			if p == nil {
				return fmt.Errorf("node %d is not ready", i)
			}
			c.Nodes[i] = p
		}
		return c.Agree(c.Running())
	})
	proctest.UntilNil(s.t, "all have one seed and one version of the rules", func() error {
		seed, err := s.server.Do("HGET", "tt:meta", "hash-seed").Text()
		if err != nil {
			return err // Redis has lost it, and gets it back
		}
		for i := range starters {
			var v struct {
				HashSeed json.Number `json:"hash_seed"`
			}
			_, body, err := c.Nodes[i].TryGet("/v1/cluster?owners=true")
			if err == nil {
				err = json.Unmarshal(body, &v)
			}
			if version := c.Nodes[i].Metric("twotier_rules_version", ""); err != nil ||
				v.HashSeed.String() != seed || version != 1 {
				return fmt.Errorf("node %d has the seed %s, Redis has %s; rules of version %d, %w",
					i, v.HashSeed, seed, version, err)
			}
		}
		return nil
	})
	round := 0
	proctest.UntilNil(s.t, "they count as one", func() error {
		round++ // an add that takes too long may count or not
		return countTogether(c, fmt.Sprint("k", round))
	})
}

// countTogether adds 1 to a key at each node, and checks each node's count.
func countTogether(c *cluster, key string) error {
	for i := range starters {
		status, body, err := c.Nodes[i].Post("/v1/add", `{"key":"`+key+`"}`)
		if err != nil || status != 200 {
			return fmt.Errorf("node %d: %d %s, %w", i, status, body, err)
		}
	}
	for i := range starters {
		if a := c.Nodes[i].Count(key, "24h"); a.Counts[0].Count != starters {
			return fmt.Errorf("node %d: %+v", i, a)
		}
	}
	return nil
}

// stop ends all nodes, and checks why nodes ended before.
func (s *starts) stop(reasons []string) {
	s.t.Helper()
	for _, n := range s.nodes {
		n.stop()
	}
	for i, n := range s.nodes {
		for _, log := range n.ended() {
			told := false
			for _, reason := range reasons {
				told = told || strings.Contains(log, reason)
			}
			if !told {
				s.t.Errorf("node %d ended:\n%s", i, log)
			}
			s.t.Logf("node %d was started again: %s", i, log)
		}
	}
}

// supervised is a node that is started again whenever it ends.
type supervised struct {
	t          *testing.T
	complaints []string

	begun chan struct{} // closed once it has been started
	done  chan struct{} // closed after the last process

	mu       sync.Mutex
	process  *proctest.Process
	up       bool     // process is ready
	stopping bool     // no further process must be started
	logs     []string // of the processes that ended by themselves
}

// run starts the node until stop is called.
func (n *supervised) run(args ...string) {
	defer close(n.done)
	opt := proctest.Options{Env: []string{"TWOTIER_HASH_SEED="}, Started: n.started,
		Complaints: n.complaints}
	for !n.isStopping() {
		p, err := program.TryServe(n.t, opt, args...)
		if err == nil {
			n.mu.Lock()
			n.up = true
			n.mu.Unlock()
			<-p.Done()
		}
		status := p.ExitCode()
		n.mu.Lock()
		n.up = false
		if !n.stopping {
			n.logs = append(n.logs, fmt.Sprintf("status %d\n%s", status, p.Log.String()))
		}
		n.mu.Unlock()
	}
}

func (n *supervised) isStopping() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopping
}

// started notes a process that is not ready yet.
func (n *supervised) started(p *proctest.Process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		close(n.begun)
	}
	n.process = p
	if n.stopping {
		p.Terminate()
	}
}

// current returns the process that was started last.
func (n *supervised) current() *proctest.Process {
	<-n.begun
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// ready returns the process if it is ready.
func (n *supervised) ready() *proctest.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil
	}
	return n.process
}

// stop stops the node, and does not wait.
func (n *supervised) stop() {
	p := n.current()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return
	}
	n.stopping = true
	p.Terminate()
}

// ended waits for the end of the node, and returns the logs of processes that ended by themselves.
func (n *supervised) ended() []string {
	proctest.Wait(n.t, "the node ends", n.done)
	return n.logs
}
