package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestNodesComeAndGoUnderTraffic lets one node leave and another join while a client counts: every
// count is there exactly once.
func TestNodesComeAndGoUnderTraffic(t *testing.T) {
	b := newRedisBed(t, 3, redistest.Start(t).URL())
	c := b.client(func(o *client.Options) { o.Timeout = 10 * time.Second })
	ctx, cancel := context.WithCancel(t.Context())
	const keys = 40
	adds := newTally(keys)
	var total atomic.Int64
	var adding sync.WaitGroup
	for i := range keys {
		adding.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				adds.add(t, c, i)
				total.Add(1)
			}
		})
	}
	more := func() {
		before := total.Load()
		b.until("traffic goes on", func() bool { return total.Load() > before+1000 || t.Failed() })
	}
	more()
	must.Succeed(t, b.nodes[1].leave())
	more()
	b.start(false)
	b.settle()
	more()
	cancel()
	adding.Wait()
	unknown := int64(0)
	for i := range keys {
		key := fmt.Sprint("k", i)
		low, high := adds.bounds(i)
		unknown += high - low
		var n int64
		b.until("all counts of "+key, func() bool { n = counted(t, c, key); return n >= low })
		if n > high {
			t.Errorf("%s: counted %d, want %d to %d", key, n, low, high)
		}
	}
	t.Logf("%d adds, the outcome of %d is unknown", total.Load(), unknown)
	if n := adds.refused.Load(); n > 0 {
		t.Errorf("%d adds were refused", n)
	}
	if unknown > total.Load()/100 {
		t.Errorf("the outcome of %d adds out of %d is unknown", unknown, total.Load())
	}
}

// TestOldTableIsReadAgain adds a node that the client's table lacks, and checks how soon the client
// learns of it.
func TestOldTableIsReadAgain(t *testing.T) {
	b := newBed(t, 2)
	c := b.client(func(o *client.Options) { o.Refresh = time.Hour })
	s := b.start(false)
	b.settle()
	key := "k"
	for i := 0; !s.owns(b, key); i++ {
		key = fmt.Sprint("k", i)
	}
	// The previous owner may still consider itself the owner for a moment.
	b.until("an answer is of another node", func() bool {
		a, err := c.Add(t.Context(), client.AddRequest{Key: key})
		must.Succeed(t, err)
		return a.Source == twotier.SourceOwner || c.Stats().Members == 3
	})
	b.until("the table is read", func() bool { return c.Stats().Members == 3 })
	b.until("straight to the owner", func() bool {
		a, err := c.Add(t.Context(), client.AddRequest{Key: key})
		must.Succeed(t, err)
		return a.Source == twotier.SourceMemory
	})
}

// TestRedisModeHasNoOwners switches the cluster to Redis mode: the client calls any node, and
// counts stay the same.
func TestRedisModeHasNoOwners(t *testing.T) {
	b := newRedisBed(t, 2, redistest.Start(t).URL())
	c := b.client()
	for range 10 {
		addOne(t, c, "a")
	}
	must.Succeed(t, b.nodes[0].node.SetMode(t.Context(), cluster.Redis))
	must.Succeed(t, c.Refresh(t.Context()))
	direct := c.Stats().Direct
	for range 10 {
		a, err := c.Add(t.Context(), client.AddRequest{Key: "a"})
		if err != nil || a.Source != twotier.SourceRedis {
			t.Errorf("%+v, %v", a, err)
		}
	}
	expect(t, c, "a", 20)
	if c.Stats().Direct != direct {
		t.Error("there is no owner to go to")
	}
}

func TestOnlyAddresses(t *testing.T) {
	b := newBed(t, 3)
	c := b.client(func(o *client.Options) { o.Addresses, o.OnlyAddresses = o.Addresses[:1], true })
	for i := range 50 {
		addOne(t, c, fmt.Sprint("k", i))
	}
	if n := b.ops("add"); n["owner"] == 0 {
		t.Errorf("nothing was passed on: %v", n)
	}
	if s := c.Stats(); s.Direct != 0 || s.Refreshed > 2 {
		t.Errorf("%+v", s)
	}
}

// TestCallsEndWithTheirContext loses an answer, and ends the context of the call that waits for it:
// the operation may have been counted.
func TestCallsEndWithTheirContext(t *testing.T) {
	b, _ := proxied(t, 1)
	c := b.client(func(o *client.Options) { o.Lanes = 1 })
	addOne(t, c, "a")
	lost := b.nodes[0].proxy.SwallowMatching(batch, 1, false)
	defer b.nodes[0].proxy.CloseAll() // the client's end would wait for the answer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	added := make(chan error, 1)
	go func() {
		_, err := c.Add(ctx, client.AddRequest{Key: "a"})
		added <- err
	}()
	select {
	case <-lost:
	case err := <-added:
		t.Fatalf("an add whose answer is lost: %v", err)
	}
	cancel()
	err := <-added
	if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("an add: %v", err)
	}
	_, err = c.Count(ctx, client.CountRequest{Key: "a", Windows: []time.Duration{time.Minute}})
	if errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("a count: %v", err)
	}
}

// TestQueueIsBounded refuses calls when too many wait.
func TestQueueIsBounded(t *testing.T) {
	b, _ := proxied(t, 1)
	c := b.client(func(o *client.Options) {
		o.Lanes, o.MaxWaiting, o.MaxBatch, o.Timeout = 1, 4, 1, time.Second
	})
	addOne(t, c, "a")
	b.nodes[0].proxy.Hang()
	var refused atomic.Int64
	var done sync.WaitGroup
	for range 20 {
		done.Go(func() {
			if _, err := c.Add(t.Context(), client.AddRequest{Key: "a"}); errors.Is(err,
				client.ErrOverloaded) {
				refused.Add(1)
			}
		})
	}
	done.Wait()
	b.nodes[0].proxy.Pass()
	if n := refused.Load(); n < 20-4-2 {
		t.Errorf("%d were refused", n)
	}
}

// TestCloseLeavesNothing closes a client in the middle of traffic.
func TestCloseLeavesNothing(t *testing.T) {
	b := newBed(t, 2)
	before := runtime.NumGoroutine()
	// However busy the machine is, the nodes answer in time.
	c, err := client.New(client.Options{Addresses: []string{b.nodes[0].address},
		Timeout: time.Minute, AttemptTimeout: 30 * time.Second})
	must.Succeed(t, err)
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for {
				if _, err := c.Add(t.Context(), client.AddRequest{Key: "a"}); err != nil {
					if !errors.Is(err, client.ErrClosed) &&
						!errors.Is(err, client.ErrUnknownOutcome) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	b.until("some were answered", func() bool { return c.Stats().Ops > 100 })
	must.Succeed(t, c.Close(t.Context()))
	must.Succeed(t, c.Close(t.Context()))
	done.Wait()
	if _, err := c.Batch(t.Context(), nil); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Top(t.Context(), 1, time.Minute); !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
	// The nodes' own goroutines come and go.
	b.until("no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+8 })
}

// TestDialOfTheUsers reaches a node through Options.Dial, at an address without a node.
func TestDialOfTheUsers(t *testing.T) {
	b := newBed(t, 1)
	var asked atomic.Value
	c := newClient(t, client.Options{
		Addresses: []string{"localhost:1"}, OnlyAddresses: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			asked.Store(network + " " + address)
			var d net.Dialer
			return d.DialContext(ctx, network, b.nodes[0].address)
		},
	})
	if _, err := c.Add(t.Context(), client.AddRequest{Key: "k"}); err != nil {
		t.Error(err)
	}
	if got := asked.Load(); got != "tcp localhost:1" {
		t.Errorf("asked to dial %q", got)
	}
}
