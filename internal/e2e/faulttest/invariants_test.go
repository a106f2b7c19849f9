package faulttest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestI2ExactlyOnceThroughEverything causes faults of all kinds in random order.
func TestI2ExactlyOnceThroughEverything(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()}, "--partitions", "31")
	tr := b.Traffic()
	tr.Accept(200)
	faults := map[string]func(){
		"replies lost, hung up": func() { b.proxy.SwallowReplies(true) },
		"replies lost":          func() { b.proxy.SwallowReplies(false) },
		"requests lost":         b.proxy.DropRequests,
		"hung":                  b.proxy.Hang,
		"cut":                   func() { b.proxy.CutAfter(rand.Int64N(300)) },
		"refused":               func() { b.proxy.Refuse(); b.proxy.CloseAll() },
		"stopped":               b.redis.Pause,
		"killed":                func() { b.redis.Kill(); b.redis.Restart(t) },
		"emptied":               func() { b.do("FLUSHALL") },
		"without scripts":       func() { b.do("SCRIPT", "FLUSH") },
		"out of memory":         func() { b.do("CONFIG", "SET", "maxmemory", "1") },
		"read only":             func() { b.do("REPLICAOF", "127.0.0.1", "1") },
		"forgetful": func() {
			b.proxy.SwallowReplies(true)
			tr.Accept(20)
			b.do("FLUSHALL")
		},
	}
	order := ""
	for range 2 {
		for name, fault := range faults { // in no order
			order += name + ", "
			fault()
			tr.Accept(60)
			b.redis.Resume()
			b.proxy.Pass()
			b.do("CONFIG", "SET", "maxmemory", "0")
			b.do("REPLICAOF", "NO", "ONE")
			tr.Accept(30)
		}
	}
	tr.Stop()
	t.Logf("order: %s", order)
	b.settle("all of them", 0)
}

// TestI7BoundedWithAndWithoutRedis lets many clients wait for a Redis that hangs. Goroutines and
// connections stay in proportion to the clients, and go away with them.
func TestI7BoundedWithAndWithoutRedis(t *testing.T) {
	b := newBed(t, nil, "--request-timeout", "1s")
	tr := b.Traffic()
	tr.Accept(200)
	calm := b.node.Metric("go_goroutines", "")
	b.proxy.SwallowReplies(false)
	const clients = 150
	crowd := (&proctest.Traffic{T: t, Ledger: b.Ledger}).To(b.node.Base).Open()
	for range clients {
		crowd.Go(func() {
			for range 2 {
				crowd.Add(proctest.SomeKey(), 1, true)
			}
		})
	}
	most := int64(0)
	proctest.Until(t, "clients wait", func() bool {
		most = max(most, b.node.Metric("go_goroutines", ""))
		return b.node.Metric("twotier_http_connections", "") >= clients
	})
	crowd.Stop()
	if most > calm+4*clients {
		t.Errorf("%d goroutines for %d clients, %d before", most, clients, calm)
	}
	if n := b.proxy.Stats().Open; n > 60 {
		t.Errorf("%d connections to Redis", n)
	}
	b.proxy.Pass()
	tr.Accept(200)
	tr.Stop()
	b.settle("I7", 0)
	b.node.HTTP.CloseIdleConnections()
	after := int64(0)
	proctest.UntilNil(t, "goroutines go away", func() error {
		if after = b.node.Metric("go_goroutines", ""); after > calm+10 {
			return fmt.Errorf("%d run, %d before", after, calm)
		}
		return nil
	})
	t.Logf("goroutines: %d, at most %d, %d after", calm, most, after)
}

// TestI8ReadsLieBetweenAcknowledgedAndAttempted reads continuously, in both modes.
func TestI8ReadsLieBetweenAcknowledgedAndAttempted(t *testing.T) {
	// In two-tier mode no read fails, so it may take as long as a busy machine needs to load a key.
	for mode, timeout := range map[string]string{"two-tier": "10s", "redis": "500ms"} {
		t.Run(mode, func(t *testing.T) {
			b := newBed(t, nil, "--mode", mode, "--request-timeout", timeout)
			tr := b.Traffic()
			quit := make(chan struct{})
			var readers sync.WaitGroup
			var reads, failures int
			readers.Go(func() {
				for {
					select {
					case <-quit:
						return
					case <-time.After(2 * time.Millisecond):
					}
					key := proctest.HotKey
					if rand.N(2) == 0 {
						key = proctest.SomeKey()
					}
					lo := b.Ledger.Of(key).Acked
					status, body := b.node.Get("/v1/count?window=24h&key=" + key)
					hi := b.Ledger.Of(key).Sent
					var a proctest.Answer
					if status != http.StatusOK || json.Unmarshal(body, &a) != nil {
						failures++
						continue
					}
					reads++
					if got := a.Counts[0].Max; got < lo || got > hi {
						t.Errorf("%s: %d is read, %d were acknowledged before and %d attempted "+
							"after: %s", key, got, lo, hi, body)
					}
				}
			})
			for range 3 {
				tr.Pass(60)
				b.proxy.SwallowReplies(true)
				tr.Pass(40)
				b.proxy.Pass()
				tr.Pass(40)
				proctest.Wait(t, "a reply is lost", b.proxy.SwallowNext(script))
				b.do("SCRIPT", "FLUSH")
			}
			tr.Stop()
			close(quit)
			readers.Wait()
			if mode == "two-tier" && failures > 0 {
				t.Errorf("%d reads failed", failures)
			}
			b.settle("I8, mode "+mode, 0)
			t.Logf("%d reads, %d failed", reads, failures)
		})
	}
}
