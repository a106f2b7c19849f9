package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// startProxied is started with a proxy between the two, and a timeout.
func startProxied(t testing.TB,
	timeout time.Duration) (*redistest.Server, *faultproxy.Proxy, *redisstore.Store) {
	t.Helper()
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	return srv, p, open(t, redisstore.Options{URL: "redis://" + p.Addr(), Timeout: timeout})
}

// proxied starts a Direct that reaches its server through a proxy.
func proxied(t testing.TB,
	timeout time.Duration) (*redistest.Server, *faultproxy.Proxy, *redisstore.Direct) {
	t.Helper()
	srv, p, s := startProxied(t, 300*time.Millisecond)
	return srv, p, openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
		Timeout: timeout})
}

func TestDirectReplyLost(t *testing.T) {
	t.Parallel()
	_, p, d := proxied(t, 10*time.Second)
	acquire(t, d, check("warm", 1, 1000, 1)) // so that Redis has the script
	for i := range 4 {
		lost := p.SwallowNext("evalsha")
		res := acquire(t, d, check("k", 2, 60_000, 6))
		<-lost
		if res.Allowed != (i < 3) || res.Checks[0].Refused != (i == 3) ||
			res.Checks[0].Limits[0].Count != int64(min(2*(i+1), 6)) {
			t.Errorf("try %d: %+v", i+1, res)
		}
		if (res.RetryAfter == 0) != res.Allowed {
			t.Errorf("try %d: allowed %v, retry after %d", i+1, res.Allowed, res.RetryAfter)
		}
	}
	lost := p.SwallowNext("evalsha")
	res := do(t, d, twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check("k", 3, 60_000,
		100)}})
	<-lost
	if got := count(t, d, "k", 60_000); got != 9 || res.Checks[0].Limits[0].Hi != 9 {
		t.Errorf("count %d, the add said %+v, want 9", got, res.Checks[0])
	}
}

// TestDirectHangs asks a Redis that does not answer. Operations that were sent have an unknown
// outcome. Operations that wait behind them until their time is up are certainly never counted.
func TestDirectHangs(t *testing.T) {
	t.Parallel()
	srv, p, d := proxied(t, 10*time.Second)
	add(t, d, "k", 1, 0)
	srv.Pause()
	const each, tries = 10, 5
	sent, before := 0, p.Stats().Requests
	for i := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if i == 0 { // this one has the time that it takes to send it
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			go func() {
				defer cancel()
				for ctx.Err() == nil && p.Stats().Requests == before {
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
		op := twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{check("k", each, 60_000, 1000)}}
		var res twotier.Result
		err := d.Do(ctx, &op, &res)
		if errors.Is(err, twotier.ErrUnknownOutcome) {
			sent++
		} else if i == 0 || !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("acquire %d: %v", i, err)
		}
		op.Kind = twotier.Count
		if err := d.Do(ctx, &op, &res); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("count: %v, want unavailable", err)
		}
		cancel()
	}
	srv.Resume()
	got := count(t, d, "k", 60_000)
	if got < 1 || got > int64(1+each*sent) || got%each != 1 || sent == tries {
		t.Errorf("count %d, want 1 and at most %d times %d, as %d of %d were sent", got, sent, each,
			sent, tries)
	}
	add(t, d, "k", 1, 0)
	hi(t, d, "k", got+1)
}

// TestDirectReplyLostThenGone counts and loses the reply, and then Redis is gone. The last error
// claims that nothing was sent, although the first attempt was.
func TestDirectReplyLostThenGone(t *testing.T) {
	t.Parallel()
	_, p, d := proxied(t, 700*time.Millisecond)
	var err error
	for range 10 { // on a busy machine, its time may be up
		first := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check("k", 1)}}
		if err = d.Do(t.Context(), &first, new(twotier.Result)); err == nil {
			break
		}
	}
	must.Succeed(t, err)
	p.SwallowReplies(true)
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check("k", 1, 60_000, 1000)}}
	var res twotier.Result
	done := make(chan error, 1)
	go func() { done <- d.Do(t.Context(), &op, &res) }()
	for p.Stats().Swallowed == 0 {
		select {
		case err := <-done:
			t.Fatalf("%v, before a reply was lost", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.Close()
	if err := <-done; !errors.Is(err, twotier.ErrUnknownOutcome) ||
		errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%v, want an unknown outcome", err)
	}
}

func TestDirectClosed(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	add(t, d, "k", 1, 0)
	for range 2 {
		must.Succeed(t, d.Close(t.Context()))
	}
	op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check("k", 1)}}
	res := make([]twotier.Result, 1)
	if err := d.Do(t.Context(), &op, &res[0]); !errors.Is(err, twotier.ErrClosed) {
		t.Error(err)
	}
	if d.DoAll(t.Context(), []twotier.Op{op}, res); !errors.Is(res[0].Err, twotier.ErrClosed) {
		t.Error(res[0].Err)
	}
	if err := d.Open(t.Context()); err == nil {
		t.Error("it opens twice")
	}
}

// TestAcquireWhoseCallerLeftKeepsNoCounts acquires over two slots of a cluster. Its caller leaves
// once the first key is counted, and the second key refuses: nothing stays counted.
func TestAcquireWhoseCallerLeftKeepsNoCounts(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.StartCluster(t, 2, 0).URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	full := "full"
	acquire(t, d, check(full, 1, 60_000, 1))
	for i := range 10 {
		key := elsewhere(s, full, fmt.Sprint("k", i, "-"))
		acquire(t, d, check(key, 1, 60_000, 10))
		ctx, leave := context.WithCancel(t.Context())
		s.Client().AddHook(&meanwhile{key: s.Address(key), do: leave, after: true})
		op := twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{check(key, 1, 60_000, 10), check(full, 1, 60_000, 1)}}
		var res twotier.Result
		left := d.Do(ctx, &op, &res)
		if left == nil {
			t.Errorf("try %d: %+v, want an error", i, res)
		}
		// No caller waits until the count is taken back.
		got := count(t, d, key, 60_000)
		for by := time.Now().Add(10 * time.Second); got != 1 && time.Now().Before(by); {
			time.Sleep(10 * time.Millisecond)
			got = count(t, d, key, 60_000)
		}
		if got != 1 {
			t.Fatalf("try %d: %d stay counted, want 1: %v", i, got, left)
		}
	}
}

// TestAcquireThatWaitsForAWorkerIsWithdrawn acquires over two slots of a cluster while their worker
// is busy. Its time is up before the worker has it: nothing is sent to Redis.
func TestAcquireThatWaitsForAWorkerIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.StartCluster(t, 2, 0).URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	held, free := make(chan struct{}), make(chan struct{})
	s.Client().AddHook(&meanwhile{key: s.Address("busy"), after: true,
		do: func() { close(held); <-free }})
	busy := make(chan error, 1)
	go func() {
		busy <- d.Do(t.Context(), &twotier.Op{Kind: twotier.Add,
			Checks: []twotier.Check{check("busy", 1)}}, new(twotier.Result))
	}()
	<-held
	first, second := "first", elsewhere(s, "first", "second-")
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, leave)
	op := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{check(first, 1, 60_000, 10), check(second, 1, 60_000, 10)}}
	err := d.Do(ctx, &op, new(twotier.Result))
	if err == nil || errors.Is(err, twotier.ErrUnknownOutcome) {
		t.Errorf("got %v, want an error that says that nothing was counted", err)
	}
	close(free)
	must.Succeed(t, <-busy)
	for _, key := range []string{first, second} {
		hi(t, d, key, 0)
	}
}
