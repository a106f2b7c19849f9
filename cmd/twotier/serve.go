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
	"strings"
	"time"

	"twotier/httpapi"
	"twotier/internal/config"
	"twotier/internal/node"
	"twotier/syncer"
)

// Bounds of stopping: requests under way get drainTimeout, and what is pending flushTimeout to reach the store.
const (
	drainTimeout = 5 * time.Second
	flushTimeout = 10 * time.Second
)

// serve runs a server until ctx is done, then flushes what it counted. Stdout gets one line once it is ready.
func serve(ctx context.Context, cfg config.Config, stdout, stderr io.Writer) error {
	log := newLogger(cfg, stderr)
	if cfg.Node == "" {
		cfg.Node = newNodeID()
	}
	s, err := newServer(ctx, cfg, log)
	if err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	s.announce(stdout, stderr)
	<-ctx.Done()
	log.Info("stopping: finishing requests and flushing", "pending_buckets", s.node.Stats().Counter.PendingBuckets)
	if err := s.close(); err != nil {
		return err
	}
	log.Info("stopped: everything is flushed")
	return nil
}

// server is the parts of one running server, in the order in which they are opened.
type server struct {
	cfg   config.Config
	log   *slog.Logger
	clock *node.Clock
	store stores
	node  *node.Node
	http  *httpapi.Server
}

func newServer(ctx context.Context, cfg config.Config, log *slog.Logger) (s *server, err error) {
	s = &server{cfg: cfg, log: log, clock: node.NewClock(nil, nil)}
	if s.store, err = openStores(ctx, cfg, s.clock, log); err != nil {
		return nil, err
	}
	opt := node.Options{
		ID: cfg.Node, Address: cfg.Listen, Mode: node.Mode(cfg.Mode), Store: s.store, Clock: s.clock,
		Partitions: cfg.Partitions, Logger: log,
	}
	if s.store.direct != nil {
		opt.Direct = s.store.direct
	}
	if opt.Mode == node.ModeTwoTier {
		if opt.Counter, err = newCounter(cfg, s.store, s.clock, log); err != nil {
			return nil, err
		}
	}
	if s.node, err = node.New(opt); err != nil {
		return nil, err
	}
	s.http, err = httpapi.New(httpapi.Options{
		Service: s.node, Listen: cfg.Listen, RequestTimeout: cfg.RequestTimeout, Logger: log,
	})
	return s, err
}

func newCounter(cfg config.Config, st stores, clock *node.Clock, log *slog.Logger) (*syncer.Counter, error) {
	ack := syncer.AckMemory
	if cfg.Ack == "redis" {
		ack = syncer.AckStore
	}
	spaces := map[string]syncer.Namespace{}
	for name, ladder := range st.ladders {
		spaces[name] = syncer.Namespace{Ladder: ladder, OnCold: syncer.OnCold(cfg.Namespaces[name].OnCold)}
	}
	memory := cfg.MaxMemory
	if st.embedded != nil {
		memory /= 2 // the other half is the store's
	}
	return syncer.New(syncer.Options{
		Store: st.store, Now: clock.Now, Namespaces: spaces, Ack: ack, FlushInterval: cfg.FlushInterval,
		Placement:    syncer.Placement{Partitions: cfg.Partitions, Seed: cfg.HashSeed},
		RoundTimeout: cfg.RedisTimeout, MaxMemory: memory, Logger: log,
	})
}

func (s *server) open(ctx context.Context) error {
	if err := s.store.open(ctx); err != nil {
		return err
	}
	if err := s.node.Open(ctx); err != nil {
		return err
	}
	if err := s.http.Open(ctx); err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	return nil
}

// close stops accepting, finishes what is under way, flushes, and only then lets go of the store.
func (s *server) close() error {
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := s.http.Close(drain)
	flush, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	return errors.Join(err, s.node.Close(flush), s.store.close(flush))
}

// announce prints the line that scripts wait for to stdout, and what a person may want to try to stderr.
func (s *server) announce(stdout, stderr io.Writer) {
	addr := s.http.Addr().String()
	ready, _ := json.Marshal(struct {
		Ready  bool   `json:"ready"`
		Listen string `json:"listen"`
		Node   string `json:"node"`
		Mode   string `json:"mode"`
		Store  string `json:"store"`
	}{true, addr, s.cfg.Node, s.cfg.Mode, s.store.Health().Kind}) // a struct of strings always marshals
	fmt.Fprintf(stdout, "%s\n", ready)
	base := "http://" + reachable(addr)
	fmt.Fprintf(stderr, "\nlistening on %s, the first page is at %s/\ntry: curl -H 'Content-Type: application/json' -d '%s' %s/v1/acquire\n\n",
		addr, base, `{"key":"alice","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`, base)
}

// reachable is an address to connect to for one that is listened on: any address becomes the loopback one.
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

func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	opt := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// newNodeID names a node that was not given a name: the machine, and something that no other process has.
func newNodeID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), 50)] + "-" + strings.ToLower(rand.Text()[:6])
}
