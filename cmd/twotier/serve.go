package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/version"
)

// Time limits for stopping, in addition to --drain-timeout: handoffTimeout for handing off the
// node's partitions, finishTimeout for requests in flight, and leaveTimeout for announcing the
// departure to other nodes and for closing the store.
const (
	handoffTimeout = 10 * time.Second
	finishTimeout  = 5 * time.Second
	leaveTimeout   = 5 * time.Second
)

// serve runs a server until ctx is done, then flushes its counts. It prints one line to stdout once
// the server is ready.
func serve(ctx context.Context, cfg config.Config, stdout, stderr io.Writer) error {
	log := newLogger(cfg.Output, stderr)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // from the start: a hang-up ends nothing
	defer signal.Stop(hangups)
	if cfg.Node == "" {
		cfg.Node = newNodeID()
	}
	limitHeap(cfg.Store, memlimit.FromCgroup, log)
	s, err := newServer(ctx, cfg, nil, log, stdout)
	if err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	s.announce(stdout, stderr)
	defer s.startWatchdog()()
	s.tellSupervisor(daemon.SdNotifyReady)
	outdated := s.runUntil(ctx, hangups)
	s.tellSupervisor(daemon.SdNotifyStopping)
	if outdated == nil {
		s.linger()
	} else { // it is not ready already, and waiting does not make Redis accept its counts
		s.cfg.DrainTimeout = min(s.cfg.DrainTimeout, time.Second)
	}
	log.Info("stopping: handing over, finishing requests and flushing", "pending_buckets",
		s.node.Stats().Counter.PendingBuckets)
	if err := errors.Join(outdated, s.close()); err != nil {
		return err
	}
	if s.cfg.Redis == "" {
		log.Info("stopped: without --redis, the counts end with the process")
	} else {
		log.Info("stopped: every count is flushed or handed over")
	}
	return nil
}

// runUntil waits until ctx is done, or returns why the server must be started again. SIGHUP, from a
// terminal that hangs up or a supervisor that wants a reload, reloads files and does not end the
// server.
func (s *server) runUntil(ctx context.Context, hangups <-chan os.Signal) (outdated error) {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.outdated:
			return err
		case <-hangups:
			s.reload()
		}
	}
}

// reload reloads the files that may change while the server runs: tokens, certificates and secrets.
// Without SIGHUP the server does so within a second of a change.
func (s *server) reload() {
	s.log.Info("SIGHUP: files are read again if they have changed; settings take effect with a " +
		"restart")
	s.tellSupervisor(reloadingState())
	s.files.Reload()
	for _, o := range s.outputs {
		if o.reopen != nil { // a file that may have been renamed
			o.reopen()
		}
	}
	s.tellSupervisor(daemon.SdNotifyReady)
}

// announce prints the line that scripts wait for to stdout, and the addresses for people to stderr.
func (s *server) announce(stdout, stderr io.Writer) {
	fmt.Fprintf(stdout, "%s\n", s.readyLine())
	addr := s.http.Addr().String()
	if s.cfg.LogFormat == "json" {
		s.log.Info("ready", "listen", addr, "node", s.cfg.Node, "mode", s.node.Mode(), "gossip",
			s.gossipAddr(), "members", s.node.Stats().Members, "version", version.String())
		return
	}
	scheme := "http://"
	if s.certs != nil {
		scheme = "https://"
	}
	base := scheme + reachable(addr)
	fmt.Fprintf(stderr, "\nlistening on %s, the status page is at %s/\n", addr, base)
	if gossip := s.gossipAddr(); gossip != "" {
		fmt.Fprintf(stderr, "cluster of %d; others join with --join %s\n",
			s.node.Stats().Members, gossip)
	}
	header := ""
	if s.cfg.Tokens != "" {
		header = `-H "Authorization: Bearer $TWOTIER_TOKEN" `
		fmt.Fprintf(stderr, "requests need a token of %s: set TWOTIER_TOKEN to one with the role "+
			"count (twotier token NAME makes one)\n", s.cfg.Tokens)
	}
	fmt.Fprintf(stderr, "try: curl %s-H 'Content-Type: application/json' -d '%s' %s\n\n", header,
		`{"key":"alice","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`,
		base+"/v1/acquire")
}

// readyLine returns the addresses of this server as JSON.
func (s *server) readyLine() []byte {
	ready, _ := json.Marshal(struct {
		Ready  bool   `json:"ready"`
		Listen string `json:"listen"`
		Resp   string `json:"resp,omitempty"`
		GRPC   string `json:"grpc,omitempty"`
		Admin  string `json:"admin,omitempty"`
		Peer   string `json:"peer,omitempty"`
		Gossip string `json:"gossip,omitempty"`
		TLS    bool   `json:"tls,omitempty"`
		Node   string `json:"node"`
		Mode   string `json:"mode"`
		Store  string `json:"store"`
	}{true, s.http.Addr().String(), s.doorAddr("resp"), s.doorAddr("grpc"),
		addrText(s.http.AdminAddr(), s.cfg.Admin), addrText(s.http.PeerAddr(), s.cfg.Peer),
		s.gossipAddr(),
		s.certs != nil, s.cfg.Node, string(s.node.Mode()),
		s.store.Health().Kind}) // a struct of strings always marshals
	return ready
}

// gossipAddr returns the address of the gossip, or "" without a cluster.
func (s *server) gossipAddr() string {
	if s.ring == nil {
		return ""
	}
	return s.ring.Gossip()
}

// addrText returns addr as text, or "" if asked, the configured address, is empty.
func addrText(addr net.Addr, asked string) string {
	if asked == "" {
		return ""
	}
	return addr.String()
}

// reachable returns an address that a client on this machine can connect to: an unspecified
// listening address becomes localhost.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

func newLogger(cfg config.Output, w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// newNodeID makes up a name for a node without a configured one: the host name and a random suffix.
func newNodeID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), 50)] + "-" + strings.ToLower(rand.Text()[:6])
}

// tellWithin bounds how long a supervisor that does not listen can hold up the node.
const tellWithin = time.Second

// tellSupervisor reports a state to the supervisor that started this process, if it wants to know
// (NOTIFY_SOCKET, as systemd with Type=notify): see sd_notify(3).
func (s *server) tellSupervisor(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if err := notify(name, state); err != nil {
		s.log.Warn("the supervisor at NOTIFY_SOCKET can't be told", "state", state, "error", err)
	}
}

// notify sends a state to the socket of a supervisor. The kernel queues few messages, usually ten,
// and blocks the next sender until the supervisor reads: in daemon.SdNotify for ever.
func notify(socket, state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(tellWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}

// reloadingState returns the state "files are being read again". Type=notify-reload wants the time
// with it.
func reloadingState() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000)
}

// startWatchdog starts runWatchdog, and returns a function that stops it.
func (s *server) startWatchdog() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.runWatchdog(ctx) })
	return func() { cancel(); done.Wait() }
}

// runWatchdog reports to the supervisor that the node is alive, twice per interval of
// WATCHDOG_USEC, until ctx is done. A node with a deadlock stops reporting and is restarted; a node
// that is not ready, because Redis is down for example, keeps reporting.
func (s *server) runWatchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("WATCHDOG_USEC can't be used", "error", err)
	}
	if every <= 0 {
		return
	}
	tick := time.NewTicker(max(every/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.node.Stats() // takes the lock of every partition
			s.tellSupervisor(daemon.SdNotifyWatchdog)
		}
	}
}
