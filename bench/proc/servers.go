package proc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"twotier.dev/twotier/bench/load"
)

// Redis is a redis-server without persistence.
type Redis struct {
	*Process
	// Addr is its host and port.
	Addr string
	dir  string
}

// StartRedis starts the redis-server found in PATH and returns when it takes connections. Writing
// to disk is off, so that only the work of the commands is measured.
func StartRedis() (*Redis, error) {
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r := &Redis{dir: dir}
	for range PortAttempts {
		if r.Addr, err = FreeAddr(); err != nil {
			break
		}
		_, port, _ := net.SplitHostPort(r.Addr)
		r.Process, _, err = Start("Ready to accept connections", "redis-server", "--port", port,
			"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
		if err == nil {
			return r, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("start redis: %w", err), os.RemoveAll(dir))
}

// Stop ends the server and removes its directory.
func (r *Redis) Stop() error { return errors.Join(r.Process.Stop(), os.RemoveAll(r.dir)) }

// Server is an HTTP server that reports its addresses in one line of JSON on its standard output.
type Server struct {
	*Process
	// Addr is its host and port. Gossip, Resp and GRPC are its addresses for gossip, Redis clients
	// and Envoy, empty if it has none.
	Addr, Gossip, Resp, GRPC string
}

// StartServer runs a program and returns when it has printed {"ready":true,"listen":"host:port"}.
func StartServer(bin string, args ...string) (*Server, error) {
	p, line, err := Start(`"ready":true`, bin, args...)
	if err != nil {
		return nil, err
	}
	var ready struct{ Listen, Gossip, Resp, GRPC string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return nil, errors.Join(fmt.Errorf("ready line %q: %w", line, err), p.Stop())
	}
	return &Server{Process: p, Addr: ready.Listen, Gossip: ready.Gossip,
		Resp: ready.Resp, GRPC: ready.GRPC}, nil
}

// Get requests a path and passes an answer with status 200 to read.
func (s *Server) Get(ctx context.Context, path string, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+path, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, resp.Status)
	}
	return read(resp)
}

// Metric reads the value of one series from /metrics, named with its labels.
func (s *Server) Metric(ctx context.Context, name string) (v float64, err error) {
	err = s.Get(ctx, "/metrics", func(resp *http.Response) error {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if value, ok := bytes.CutPrefix(lines.Bytes(), []byte(name+" ")); ok {
				v, err = strconv.ParseFloat(string(value), 64)
				return err
			}
		}
		return errors.Join(lines.Err(), fmt.Errorf("metric %s: not on the page", name))
	})
	return v, err
}

// Await waits until ok accepts the value of a metric, for a few minutes at most.
func (s *Server) Await(ctx context.Context, name string, ok func(float64) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	for {
		v, err := s.Metric(ctx, name)
		if err != nil || ok(v) {
			return err
		}
		if err := load.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("metric %s is still %g: %w", name, v, err)
		}
	}
}
