package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// configFile returns the text of the configuration file. It has only settings that Redis 7.0 and
// all later servers know.
func (s *Server) configFile() string {
	c := s.cfg
	lines := []string{
		"bind " + s.host(),
		"dir " + strconv.Quote(s.dir),
		"daemonize no",
		`logfile ""`,
	}
	lines = append(lines, s.portLines()...)
	if c.host != "" {
		lines = append(lines, "protected-mode no") // only tests can reach it
	}
	if !c.sentinel() {
		lines = append(lines, s.dataLines()...)
	}
	lines = append(lines, c.lines...)
	return strings.Join(lines, "\n") + "\n"
}

// portLines returns the settings for where the server listens.
func (s *Server) portLines() []string {
	switch {
	case s.cfg.unix:
		return []string{"port 0", "unixsocket " + strconv.Quote(s.Addr()), "unixsocketperm 700"}
	case s.cfg.tls:
		return []string{
			"port 0", fmt.Sprintf("tls-port %d", s.port),
			"tls-ca-cert-file " + strconv.Quote(s.tls.CA),
			"tls-cert-file " + strconv.Quote(s.tls.Cert),
			"tls-key-file " + strconv.Quote(s.tls.Key),
			"tls-auth-clients optional",
		}
	default:
		return []string{fmt.Sprintf("port %d", s.port)}
	}
}

// dataLines returns the settings that a sentinel doesn't know.
func (s *Server) dataLines() []string {
	c := s.cfg
	lines := []string{
		`save ""`,
		// A replica's first copy starts at once instead of after five seconds.
		"repl-diskless-sync yes", "repl-diskless-sync-delay 0",
		// CLUSTER SLOTS hides a replica until its offset has moved. Without writes that takes a
		// ping.
		"repl-ping-replica-period 1",
		// A script that is running while the machine stands still must not cause BUSY replies.
		"lua-time-limit 600000",
	}
	if c.aof {
		lines = append(lines, "appendonly yes", "appendfsync always")
	}
	if c.user != "" {
		lines = append(lines, fmt.Sprintf("user %q on %q ~* &* +@all", c.user, ">"+c.pass),
			fmt.Sprintf("masteruser %q", c.user), fmt.Sprintf("masterauth %q", c.pass))
		if c.user != "default" {
			lines = append(lines, "user default off")
		}
	}
	if c.tls {
		lines = append(lines, "tls-replication yes", "tls-cluster yes")
	}
	if c.cluster {
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf",
			"cluster-announce-ip "+loopback,
			fmt.Sprintf("cluster-node-timeout %d", nodeTimeout.Milliseconds()),
			"cluster-replica-validity-factor 0", "cluster-allow-replica-migration no")
	}
	return lines
}

// sentinel reports whether the process is a sentinel rather than a server that holds data.
func (c config) sentinel() bool { return len(c.args) > 0 && c.args[0] == "--sentinel" }

// newClient returns a client that never sends a command twice.
func (s *Server) newClient() (*redis.Client, error) {
	opt := &redis.Options{
		Addr:            s.Addr(),
		Username:        s.cfg.user,
		Password:        s.cfg.pass,
		MaxRetries:      -1,
		DialerRetries:   1,
		PoolSize:        1,
		DisableIdentity: true,
		ReadTimeout:     commandTimeout,
		WriteTimeout:    commandTimeout,

		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if s.cfg.unix {
		opt.Network = "unix"
	}
	if s.cfg.tls {
		var err error
		if opt.TLSConfig, err = s.tls.clientConfig(); err != nil {
			return nil, err
		}
	}
	return redis.NewClient(opt), nil
}

// Client returns a client with the defaults of go-redis, closed with the test.
func (s *Server) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial returns an error unless the server accepts connections. Don't use the go-redis client for
// this: after a failed dial it returns the same error from memory for up to a second.
func (s *Server) dial() error {
	network := "tcp"
	if s.cfg.unix {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, s.Addr(), commandTimeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Do sends one command, without retries, and waits up to ten seconds for the reply.
func (s *Server) Do(args ...any) *redis.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	return client.Do(ctx, args...)
}
