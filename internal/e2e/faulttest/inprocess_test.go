package faulttest

import (
	"context"
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
