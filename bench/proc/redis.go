package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Redis is a redis-server without persistence.
type Redis struct {
	*Process
	// Addr is its host and port.
	Addr string
	dir  string
}

// StartRedis starts the redis-server found in PATH and returns when it takes connections. Writing to disk is off, so that
// only the work of the commands is measured.
func StartRedis(ctx context.Context) (*Redis, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	p, err := start(ctx, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go p.runDrain()
	r := &Redis{Process: p, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	if err := p.awaitPort(ctx, r.Addr); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

// Stop ends the server and removes its directory.
func (r *Redis) Stop() error {
	return errors.Join(r.Process.Stop(), os.RemoveAll(r.dir))
}

// awaitPort returns when addr takes connections, the process has ended, or ten seconds have passed.
func (p *Process) awaitPort(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.exited:
			return fmt.Errorf("ended while starting: %w: %s", p.err, p.stderr)
		case <-ctx.Done():
			return fmt.Errorf("connect to %s: %w", addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
