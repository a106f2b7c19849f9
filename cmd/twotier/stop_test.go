package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/redistest"
)

// TestAllStopAtOnce stops all nodes of a cluster at the same time, like a supervisor that gives
// them some seconds. No node waits for another to take over, and every count is in Redis.
func TestAllStopAtOnce(t *testing.T) {
	redis := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	nodes := startThree(t, ctx, "--redis", redis.URL(), "--flush-interval", "1m", "--max-lag", "0")
	const keys = 60
	for k := range keys {
		fetch(t, "POST", nodes[k%3].url+"/v1/add", fmt.Sprintf(`{"key":"k%d","n":%d}`, k, k+1))
	}
	stop()
	for _, n := range nodes {
		if errs := n.wait(t); strings.Contains(errs, "not everything could be handed over") {
			t.Errorf("it waited in vain:\n%s", errs)
		}
	}
	again := startServe(t, t.Context(), "--redis", redis.URL())
	for k := range keys {
		if got := fetch(t, "GET", fmt.Sprintf("%s/v1/count?key=k%d&window=24h", again.url, k),
			""); !strings.Contains(got, fmt.Sprintf(`"count":%d,`, k+1)) {
			t.Errorf("%s, want %d", got, k+1)
		}
	}
}

// served is a running serve command.
type served struct {
	url, gossip string
	out, errs   output
	status      chan int
}

// wait waits until the command has ended without an error, and returns its log.
func (s *served) wait(t *testing.T) string {
	t.Helper()
	if code := <-s.status; code != exitOK {
		t.Errorf("serve ended with status %d:\n%s", code, s.errs.String())
	}
	s.status <- exitOK
	return s.errs.String()
}

// startServe runs serve until ctx is done or the test ends.
func startServe(t *testing.T, ctx context.Context, args ...string) *served {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	s := &served{status: make(chan int, 1)}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}, args...)
	go func() { s.status <- run(ctx, args, nil, &s.out, &s.errs) }()
	t.Cleanup(func() { stop(); s.wait(t) })
	eventually(t, "ready", patience, func() bool {
		return strings.Contains(s.out.String(), "\n")
	})
	var ready struct{ Listen, Gossip string }
	decode(t, s.out.String(), &ready)
	s.url, s.gossip = "http://"+ready.Listen, ready.Gossip
	return s
}

// startThree starts a cluster of three.
func startThree(t *testing.T, ctx context.Context, args ...string) (nodes []*served) {
	t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		own := append([]string{"--node", id}, args...)
		if len(nodes) > 0 {
			own = append(own, "--join", nodes[0].gossip)
		}
		nodes = append(nodes, startServe(t, ctx, own...))
	}
	for _, n := range nodes {
		eventually(t, "three members", patience, func() bool {
			return strings.Count(fetch(t, "GET", n.url+"/v1/cluster", ""), `"state":"alive"`) == 3
		})
	}
	return nodes
}
