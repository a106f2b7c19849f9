package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Server is an HTTP server that says where it listens in one line of JSON on its standard output.
type Server struct {
	*Process
	// Base is its URL without a trailing slash; Addr its host and port. Gossip is where it gossips, if it does.
	Base, Addr, Gossip string
}

// StartServer runs a program and returns when it has printed {"ready":true,"listen":"host:port"}.
func StartServer(ctx context.Context, bin string, args ...string) (*Server, error) {
	p, err := start(ctx, bin, args...)
	if err != nil {
		return nil, err
	}
	line := make(chan []byte, 1)
	go p.runReadReady(line)
	select {
	case raw := <-line:
		var ready struct {
			Ready  bool
			Listen string
			Gossip string
		}
		if err := json.Unmarshal(raw, &ready); err != nil || !ready.Ready {
			return nil, errors.Join(fmt.Errorf("ready line %q: %w", raw, err), p.Stop())
		}
		return &Server{Process: p, Base: "http://" + ready.Listen, Addr: ready.Listen, Gossip: ready.Gossip}, nil
	case <-time.After(20 * time.Second):
		return nil, errors.Join(errors.New("not ready after 20 s"), p.Stop())
	}
}

// runReadReady sends the first line and drops the rest.
func (p *Process) runReadReady(line chan<- []byte) {
	r := bufio.NewReader(p.stdout)
	first, _ := r.ReadBytes('\n')
	line <- first
	p.stdout = r
	p.runDrain()
}
