package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// day is the longest window of the default ladder, in milliseconds.
const day = 24 * 60 * 60 * 1000

// parts are the parts of a node in this process, on a real Redis behind a proxy.
type parts struct {
	redis   *redistest.Server
	proxy   *faultproxy.Proxy
	store   *redisstore.Store
	direct  *redisstore.Direct
	counter *syncer.Counter
	cutOff  bool // closing is allowed to fail
}

// newParts makes the parts. The counter is still to be opened, by the test or a node.
func newParts(t *testing.T) *parts {
	t.Helper()
	p := &parts{redis: redistest.Start(t)}
	p.proxy = faultproxy.New(t, p.redis.Addr())
	var err error
	place := twotier.Placement{Partitions: 7}
	p.store, err = redisstore.New(redisstore.Options{
		URL: "redis://" + p.proxy.Addr(), Timeout: 150 * time.Millisecond, Placement: place,
		Ladders: map[string]*leaparray.Ladder{"default": leaparray.Default()},
	})
	must.Succeed(t, err)
	now := func() int64 { return time.Now().UnixMilli() }
	p.direct, err = redisstore.NewDirect(redisstore.DirectOptions{Store: p.store, Now: now,
		Writer: "direct", Timeout: time.Second})
	must.Succeed(t, err)
	p.counter, err = syncer.New(syncer.Options{Store: p.store, Placement: place,
		FlushInterval: 20 * time.Millisecond, RoundTimeout: 150 * time.Millisecond,
		LoadTimeout: proctest.Patience})
	must.Succeed(t, err)
	must.Succeed(t, p.direct.Open(t.Context()))
	t.Cleanup(func() {
		if err := p.close(); err != nil && !p.cutOff {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// close may be called twice.
func (p *parts) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Patience)
	defer cancel()
	err := errors.Join(p.counter.Close(ctx), p.direct.Close(ctx))
	if closed := p.store.Close(); closed != nil && !strings.Contains(closed.Error(), "closed") {
		err = errors.Join(err, closed)
	}
	return err
}

func (p *parts) add(t *testing.T, key string, n int64) {
	t.Helper()
	var res twotier.Result
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: n}}}
	must.Succeed(t, p.counter.Do(t.Context(), &op, &res))
}

func (p *parts) count(t *testing.T, key string) int64 {
	t.Helper()
	var res twotier.Result
	op := twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{Key: []byte(key), Limits: []twotier.Limit{{Window: day}}}}}
	must.Succeed(t, p.counter.Do(t.Context(), &op, &res))
	return res.Checks[0].Limits[0].Hi
}

// trouble causes one fault after the other until ctx is done, and then heals.
func (p *parts) trouble(ctx context.Context) {
	for ctx.Err() == nil {
		for _, fault := range []func(){
			func() { p.proxy.SwallowReplies(true) }, func() { p.proxy.SwallowReplies(false) },
			p.proxy.DropRequests, p.proxy.Hang,
			p.proxy.CloseAll, func() { p.redis.Do("SCRIPT", "FLUSH") },
			func() { p.proxy.SwallowNext(script) },
			func() { p.proxy.CutAfter(50) }, func() { p.proxy.Delay(30 * time.Millisecond) },
		} {
			fault()
			pauseFor(ctx, 30*time.Millisecond+rand.N(200*time.Millisecond))
			p.proxy.Pass()
			pauseFor(ctx, rand.N(100*time.Millisecond))
		}
	}
	p.proxy.Pass()
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// TestI1VisibleIsSyncedPlusPending has one client that knows every count, and checks that it always
// reads exactly that, whatever happens to the flushes.
func TestI1VisibleIsSyncedPlusPending(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	must.Succeed(t, p.counter.Open(t.Context()))
	want := map[string]int64{}
	// Count every key before the faults: while Redis is down, a cold key shows only the counts of
	// this process.
	for i := range 50 {
		key := fmt.Sprint("k", i)
		p.add(t, key, 1)
		want[key] = 1
		if got := p.count(t, key); got != 1 {
			t.Fatalf("%s: %d, want 1", key, got)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.trouble(ctx) })
	// On a slow machine the first noticeable fault may come later.
	for i := 0; i < 1500 || p.counter.Stats().BatchesUnknownTotal == 0 && i < 60_000; i++ {
		key, n := fmt.Sprint("k", rand.N(50)), 1+rand.Int64N(9)
		p.add(t, key, n)
		want[key] += n
		other := fmt.Sprint("k", rand.N(50))
		if got := p.count(t, other); got != want[other] {
			t.Fatalf("%s: %d is visible, want %d", other, got, want[other])
		}
		time.Sleep(time.Millisecond) // gives the faults time to happen
	}
	stop()
	running.Wait()
	s := p.counter.Stats()
	t.Logf("%d batches ok, %d unknown, %d refused", s.BatchesOKTotal, s.BatchesUnknownTotal,
		s.BatchesRefusedTotal)
	if s.BatchesUnknownTotal == 0 {
		t.Error("no fault had any effect")
	}
}

// TestI9NothingRunsAfterClose opens, uses and closes a whole node, with Redis up, hung and gone.
func TestI9NothingRunsAfterClose(t *testing.T) {
	// Not parallel: it compares the goroutines of the process.
	for name, fault := range map[string]func(p *parts){
		"up": func(*parts) {}, "hung": func(p *parts) { p.proxy.SwallowReplies(false) },
		"gone": func(p *parts) { p.redis.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			before := goroutinesOfOurs()
			func() {
				p := newParts(t)
				p.cutOff = name != "up"
				n, err := node.New(node.Options{ID: "n", Counter: p.counter, Direct: p.direct,
					Store: health{p.store}, Clock: storeclock.New(nil, nil),
					Placement: twotier.Placement{Partitions: 7}})
				must.Succeed(t, err)
				s, err := httpapi.New(httpapi.Options{Service: n, Listen: "127.0.0.1:0"})
				must.Succeed(t, err)
				must.Succeed(t, errors.Join(s.Open(t.Context()), n.Open(t.Context(), "")))
				client := proctest.NewClient()
				for i := range 20 {
					res, err := client.Post("http://"+s.Addr().String()+"/v1/add",
						"application/json", strings.NewReader(fmt.Sprintf(`{"key":"k%d"}`, i)))
					if err != nil || res.StatusCode != http.StatusOK {
						t.Fatalf("add: %v %v", res, err)
					}
					res.Body.Close()
				}
				fault(p)
				// This event is certainly not flushed yet.
				must.Succeed(t, n.Do(t.Context(), &twotier.Op{Kind: twotier.Add,
					Checks: []twotier.Check{{Key: []byte("k0"), N: 1}}},
					&twotier.Result{}))
				bound := 2 * time.Second
				if name == "up" {
					bound = 20 * time.Second // it needs far less, but the machine may be busy
				}
				ctx, cancel := context.WithTimeout(context.Background(), bound)
				defer cancel()
				err = errors.Join(s.Close(ctx), n.Close(ctx), p.counter.Close(ctx),
					p.direct.Close(ctx), p.store.Close())
				again := errors.Join(s.Close(ctx), n.Close(ctx), p.counter.Close(ctx),
					p.direct.Close(ctx))
				if (err == nil) != (name == "up") || (again == nil) != (name == "up") {
					t.Errorf("close: %v, again: %v", err, again)
				}
				if err := n.Do(t.Context(),
					&twotier.Op{Checks: []twotier.Check{{Key: []byte("k"), N: 1}}},
					&twotier.Result{}); !errors.Is(err, twotier.ErrClosed) {
					t.Errorf("an add after Close: %v", err)
				}
				client.CloseIdleConnections()
			}()
			proctest.Until(t, "nothing of ours runs",
				func() bool { return len(goroutinesOfOurs()) <= len(before) })
		})
	}
}

// health is a store that always reports that it is up.
type health struct{ *redisstore.Store }

func (health) Health() cluster.StoreHealth { return cluster.StoreHealth{Up: true} }

// goroutinesOfOurs returns the stacks of goroutines that the packages under test have started.
func goroutinesOfOurs() (stacks []string) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		for _, p := range []string{"twotier.dev/twotier/syncer.", "twotier.dev/twotier/redisstore.",
			"twotier.dev/twotier/httpapi.", "twotier.dev/twotier/internal/node.", "fasthttp",
			"go-redis/v9"} {
			if strings.Contains(stack, p) && !strings.Contains(stack, "testing.tRunner") &&
				!strings.Contains(stack, "redistest") {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}

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
