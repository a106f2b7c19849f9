package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Sentinel is a primary with a replica, watched by three sentinels. Two of them must agree that the
// primary is down.
type Sentinel struct {
	// Name is the sentinels' name for the primary.
	Name string
	// Nodes are the two servers that hold data. The first one began as the primary.
	Nodes []*Server
	// Sentinels are the three watching servers.
	Sentinels []*Server
}

// StartSentinel starts all five processes and waits until the replica is connected and the
// sentinels know it and each other. They consider a server dead if it hasn't answered for five
// seconds. The options apply to the servers that hold data; TLS and UnixSocket don't work here.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.tls || cfg.unix {
		t.Fatal("redistest: sentinels reach their servers by plain TCP only")
	}
	s := &Sentinel{Name: "twotier"}
	primary := start(t, cfg)
	host, port := primary.hostPort()
	replicaCfg := cfg
	replicaCfg.lines = append([]string{fmt.Sprintf("replicaof %s %s", host, port)}, cfg.lines...)
	s.Nodes = []*Server{primary, start(t, replicaCfg)}
	waitFor(t, "the replica is connected", func() error {
		is, err := isReplica(s.Nodes[1])
		if err == nil && !is {
			err = errors.New("not a replica")
		}
		return err
	})
	for range 3 {
		watcher := start(t, s.watching(primary))
		// After a pause of two seconds sentinels do nothing for the next thirty, unless they know
		// this setting (Redis 7).
		watcher.Do("SENTINEL", "DEBUG", "tilt-period", "1000")
		s.Sentinels = append(s.Sentinels, watcher)
	}
	s.WaitReady(t)
	return s
}

func (s *Sentinel) watching(primary *Server) config {
	host, port := primary.hostPort()
	c := config{args: []string{"--sentinel"}, lines: []string{
		fmt.Sprintf("sentinel monitor %s %s %s 2", s.Name, host, port),
		// After a switch a sentinel may need a second to connect to the new primary; with 1000 here
		// the new primary was sometimes considered dead at once, and the old one promoted again.
		fmt.Sprintf("sentinel down-after-milliseconds %s 5000", s.Name),
		// An election that fails is repeated after twice this time.
		fmt.Sprintf("sentinel failover-timeout %s 8000", s.Name),
	}}
	if primary.cfg.user != "" {
		c.lines = append(c.lines,
			fmt.Sprintf("sentinel auth-user %s %q", s.Name, primary.cfg.user),
			fmt.Sprintf("sentinel auth-pass %s %q", s.Name, primary.cfg.pass))
	}
	return c
}

// WaitReady waits until all sentinels know each other, and a primary and a replica that both
// answer.
func (s *Sentinel) WaitReady(t testing.TB) {
	t.Helper()
	for _, watcher := range s.Sentinels {
		waitFor(t, "sentinels agree", func() error {
			state, err := s.state(watcher)
			if err != nil {
				return err
			}
			if state["flags"] != "master" || state["num-slaves"] != "1" ||
				state["num-other-sentinels"] != "2" {
				return fmt.Errorf("%s sees %v", watcher.Addr(), state)
			}
			return nil
		})
	}
}

// state returns what a sentinel knows of the primary, by field.
func (s *Sentinel) state(watcher *Server) (map[string]string, error) {
	cmd := redis.NewMapStringStringCmd(context.Background(), "SENTINEL", "MASTER", s.Name)
	err := watcher.send(cmd)
	return cmd.Val(), err
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, watcher := range s.Sentinels {
		addrs = append(addrs, watcher.Addr())
	}
	return addrs
}

// URL returns redis+sentinel:// with the addresses of the sentinels and the name of the primary. It
// has the user and password of the servers that hold data, if any; the sentinels need none.
func (s *Sentinel) URL() string { return s.Nodes[0].urlOf("+sentinel", s.Addrs()) + "/" + s.Name }

// Client returns a client of the current primary, closed with the test.
func (s *Sentinel) Client(t testing.TB) redis.UniversalClient {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name,
		SentinelAddrs: s.Addrs(), Username: s.Nodes[0].cfg.user, Password: s.Nodes[0].cfg.pass})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Primary waits until all sentinels agree on the primary and returns it.
func (s *Sentinel) Primary(t testing.TB) *Server {
	t.Helper()
	return s.waitPrimary(t, func(*Server) bool { return true })
}

// KillPrimary kills the primary and returns it. Writes that it had not sent to the replica are
// lost.
func (s *Sentinel) KillPrimary(t testing.TB) *Server {
	t.Helper()
	primary := s.Primary(t)
	primary.Kill()
	return primary
}

// WaitPromotion waits until all sentinels name another primary than the old one and it accepts
// writes, and returns it. It takes some seconds. If the old primary is restarted the sentinels make
// it a replica.
func (s *Sentinel) WaitPromotion(t testing.TB, old *Server) *Server {
	t.Helper()
	promoted := s.waitPrimary(t, func(p *Server) bool { return p != old })
	waitFor(t, "the replica is promoted", func() error {
		return infoHas(promoted, []any{"INFO", "replication"}, "role:master")
	})
	return promoted
}

// waitPrimary waits until all sentinels agree on a primary that willDo accepts.
func (s *Sentinel) waitPrimary(t testing.TB, willDo func(*Server) bool) *Server {
	t.Helper()
	var primary *Server
	waitFor(t, "sentinels agree on a primary", func() error {
		addr := ""
		for _, watcher := range s.Sentinels {
			state, err := s.state(watcher)
			if err != nil {
				return err
			}
			its := state["ip"] + ":" + state["port"]
			if addr == "" {
				addr = its
			}
			if its != addr {
				return fmt.Errorf("one says %s, another %s", addr, its)
			}
		}
		for _, node := range s.Nodes {
			if node.Addr() == addr && willDo(node) {
				primary = node
				return nil
			}
		}
		return fmt.Errorf("they say %s", addr)
	})
	return primary
}
