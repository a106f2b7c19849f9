package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestIsActionAllowed: any text will do, and the other clients count under the same key.
func TestIsActionAllowed(t *testing.T) {
	c := newBed(t, 1).client()
	for _, tt := range []struct {
		user, action, key string
	}{
		{"ann", "reply", "3:ann:reply"},
		{"g\u00ff:\U0001f40d", "reply", "4:g\u00ff:\U0001f40d:reply"},
		{"a", "b:c", "1:a:b:c"},
		{"a:b", "c", "3:a:b:c"},
		{"\n", "reply", client.SafeKey("1:\n:reply")},
		{"", "", "0::"},
	} {
		for i, want := range []bool{true, true, false} {
			got, err := c.IsActionAllowed(t.Context(), tt.user, tt.action, time.Minute, 2)
			if err != nil || got != want {
				t.Errorf("%q, %q, time %d: %t, %v", tt.user, tt.action, i, got, err)
			}
		}
		expect(t, c, tt.key, 2)
	}
	got, err := c.IsActionAllowed(t.Context(), "ann", "reply", -time.Minute, 2)
	if got || !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a period below zero: %t, %v", got, err)
	}
}

func TestCallsOfOneNode(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	minute := []client.Limit{{Window: time.Minute, Max: 3}, {Window: 90 * time.Minute, Max: 100}}
	a, err := c.Add(t.Context(), client.AddRequest{Key: `a "key" \ é`, N: 2, Limits: minute})
	if err != nil || a.Over || a.Source != twotier.SourceMemory || len(a.Counts) != 2 ||
		a.Counts[0].Count != 2 ||
		a.Counts[0].Window != time.Minute || a.Counts[1].Window != 90*time.Minute {
		t.Errorf("add: %+v, %v", a, err)
	}
	n, err := c.Count(t.Context(),
		client.CountRequest{Key: `a "key" \ é`,
			Windows: []time.Duration{time.Minute, 24 * time.Hour}})
	if err != nil || len(n.Counts) != 2 || n.Counts[0].Max != 2 ||
		n.Counts[0].Bucket != time.Millisecond || n.Counts[1].Window != 24*time.Hour {
		t.Errorf("count: %+v, %v", n, err)
	}
	q, err := c.Acquire(t.Context(),
		client.AcquireRequest{Check: client.Check{Key: `a "key" \ é`, Limits: minute}})
	if err != nil || !q.Allowed || q.Limits[0].Remaining != 0 || q.Limits[1].Max != 100 ||
		q.RetryAfter != 0 {
		t.Errorf("acquire: %+v, %v", q, err)
	}
	q, err = c.Acquire(t.Context(),
		client.AcquireRequest{Check: client.Check{Key: `a "key" \ é`, Limits: minute}})
	if err != nil || q.Allowed || !q.Limits[0].Refused || q.Limits[1].Refused ||
		q.RetryAfter <= 0 || q.RetryAfter > time.Minute+time.Second {
		t.Errorf("acquire of what is not left: %+v, %v", q, err)
	}
	q, err = c.Acquire(t.Context(), client.AcquireRequest{Checks: []client.Check{
		{Key: "b", Limits: minute}, {Namespace: "default", Key: "c", N: 4, Limits: minute},
	}})
	if err != nil || q.Allowed || len(q.Checks) != 2 || !q.Checks[0].Allowed ||
		q.Checks[1].Allowed || q.Checks[1].RetryAfter >= 0 {
		t.Errorf("acquire of two: %+v, %v", q, err)
	}
	s, err := c.Series(t.Context(), "", `a "key" \ é`, time.Minute)
	sum := int64(0)
	for _, p := range s.Points {
		sum += p.Count
	}
	if err != nil || s.Bucket != time.Second || sum != 3 {
		t.Errorf("series: %+v, %v", s, err)
	}
	top, err := c.Top(t.Context(), 5, time.Minute)
	if err != nil || len(top) != 1 || top[0].Count != 3 {
		t.Errorf("top: %+v, %v", top, err)
	}
	refused, err := c.TopRefused(t.Context(), 5, time.Minute)
	if err != nil || !slices.Equal(refused, []twotier.KeyCount{
		{NS: "default", Key: `a "key" \ é`, Count: 1},
		{NS: "default", Key: "c", Count: 1}}) {
		t.Errorf("refused most: %+v, %v", refused, err)
	}
	shadowed, err := c.TopShadowRefused(t.Context(), 5, time.Minute)
	if err != nil || len(shadowed) != 0 {
		t.Errorf("refused most in shadow: %+v, %v", shadowed, err)
	}
	for range client.Askers { // each connection for questions sends a body
		if err := c.Reset(t.Context(), "", `a "key" \ é`); err != nil ||
			counted(t, c, `a "key" \ é`) != 0 {
			t.Errorf("reset: %v", err)
		}
	}
	s, err = c.Series(t.Context(), "", "b", time.Minute)
	if err != nil || len(s.Points) == 0 {
		t.Errorf("series after a request with a body: %+v, %v", s, err)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	for name, r := range map[string]client.AddRequest{
		"no key":        {},
		"not UTF-8":     {Key: "a\xff"},
		"control":       {Key: "a\nb"},
		"much too long": {Key: string(make([]byte, 1<<20))},
		"bad namespace": {Namespace: "a b", Key: "a"},
		"long window":   {Key: "a", Limits: []client.Limit{{Window: 26 * time.Hour, Max: 1}}},
		"odd window":    {Key: "a", Limits: []client.Limit{{Window: time.Microsecond, Max: 1}}},
	} {
		if _, err := c.Add(t.Context(), r); !errors.Is(err, client.ErrInvalid) ||
			errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := c.Add(t.Context(),
		client.AddRequest{Key: "a", Limits: []client.Limit{{Window: 26 * time.Hour, Max: 1}}})
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Code() != "refused" ||
		p.Status != 422 || p.Error() == "" {
		t.Errorf("%#v", err)
	}
	if _, err := c.Batch(t.Context(), []client.Op{{}}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty operation: %v", err)
	}
}

// TestGoesStraightToTheOwner checks the nodes' metrics: none had to forward.
func TestGoesStraightToTheOwner(t *testing.T) {
	b := newRedisBed(t, 3, redistest.Start(t).URL())
	c := b.client()
	const keys = 500
	var done sync.WaitGroup
	for i := range keys {
		done.Go(func() {
			a, err := c.Add(t.Context(), client.AddRequest{Key: fmt.Sprint("user:", i)})
			if err != nil || a.Source != twotier.SourceMemory {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	done.Wait()
	var ops []client.Op
	for i := range keys {
		ops = append(ops,
			client.Op{Count: &client.CountRequest{Key: fmt.Sprint("user:", i),
				Windows: []time.Duration{time.Minute}}})
	}
	res, err := c.Batch(t.Context(), ops)
	must.Succeed(t, err)
	for i, r := range res {
		if r.Err != nil || r.Count.Counts[0].Count != 1 {
			t.Errorf("key %d: %+v", i, r)
		}
	}
	if n := b.ops("add"); n["memory"] != keys || len(n) > 1 && n["owner"] > 0 {
		t.Errorf("adds by source: %v", n)
	}
	if n := b.ops("count"); n["memory"] != keys || n["owner"] > 0 {
		t.Errorf("counts by source: %v", n)
	}
	if s := c.Stats(); s.Direct != 2*keys || s.Ops != 2*keys || s.Members != 3 {
		t.Errorf("%+v", s)
	}
}

// TestOneLimitThroughThreeClients uses up a limit through clients that each know only one node at
// first.
func TestOneLimitThroughThreeClients(t *testing.T) {
	b := newRedisBed(t, 3, redistest.Start(t).URL())
	limits := []client.Limit{{Window: time.Hour, Max: 1000}}
	var allowed, refused atomic.Int64
	var done sync.WaitGroup
	for i := range 3 {
		c := b.client(func(o *client.Options) { o.Addresses = []string{b.nodes[i].address} })
		for range 8 {
			done.Go(func() {
				for range 75 {
					a, err := c.Acquire(t.Context(),
						client.AcquireRequest{Check: client.Check{Key: "hot", Limits: limits}})
					switch {
					case err != nil:
						t.Error(err)
					case a.Allowed:
						allowed.Add(1)
					default:
						refused.Add(1)
					}
				}
			})
		}
	}
	done.Wait()
	if allowed.Load() != 1000 || refused.Load() != 800 {
		t.Errorf("%d allowed, %d refused; want 1000 and 800", allowed.Load(), refused.Load())
	}
}

func TestBatchKeepsTheOrder(t *testing.T) {
	b := newBed(t, 3)
	c := b.client(func(o *client.Options) { o.MaxBatch = 7 })
	var ops []client.Op
	for i := range 300 {
		key := fmt.Sprint("k", i%20)
		limits := []client.Limit{{Window: time.Hour, Max: 5}}
		switch i / 20 % 3 {
		case 0:
			ops = append(ops, client.Op{Add: &client.AddRequest{Key: key, Limits: limits}})
		case 1:
			ops = append(ops,
				client.Op{Count: &client.CountRequest{Key: key,
					Windows: []time.Duration{time.Hour}}})
		default:
			ops = append(ops,
				client.Op{Acquire: &client.AcquireRequest{Check: client.Check{Key: key,
					Limits: limits}}})
		}
	}
	ops[50] = client.Op{Add: &client.AddRequest{Key: "bad\x00"}}
	ops[51] = client.Op{Add: &client.AddRequest{Key: "bad\xff"}}
	res, err := c.Batch(t.Context(), ops)
	must.Succeed(t, err)
	want := map[string]int64{}
	for i, o := range ops {
		r := res[i]
		switch {
		case i == 50 || i == 51:
			if !errors.Is(r.Err, client.ErrInvalid) || r.Add != nil {
				t.Errorf("%d: %+v", i, r)
			}
		case r.Err != nil:
			t.Errorf("%d: %v", i, r.Err)
		case o.Add != nil:
			want[o.Add.Key]++
			if n := r.Add.Counts[0].Max; n != want[o.Add.Key] || r.Add.Over != (n > 5) {
				t.Errorf("%d: %+v, want %d", i, r.Add, want[o.Add.Key])
			}
		case o.Count != nil:
			if n := r.Count.Counts[0].Max; n != want[o.Count.Key] {
				t.Errorf("%d: %+v, want %d", i, r.Count, want[o.Count.Key])
			}
		default:
			if r.Acquire.Allowed != (want[o.Acquire.Key] < 5) {
				t.Errorf("%d: %+v with %d", i, r.Acquire, want[o.Acquire.Key])
			}
			if r.Acquire.Allowed {
				want[o.Acquire.Key]++
			}
		}
	}
}

// TestGateOfAClosedClient: it is as if no node could be reached. A new client of the same process
// is not affected.
func TestGateOfAClosedClient(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	addOne(t, c, "after close")
	must.Succeed(t, c.Close(t.Context()))
	if ok, err := c.IsActionAllowed(t.Context(), "ann", "reply", time.Minute, 9); ok ||
		!errors.Is(err, client.ErrClosed) {
		t.Errorf("an action: %v, %v", ok, err)
	}
	for outage, want := range map[client.Outage]int{client.FailOpen: 200, client.FailClosed: 503} {
		g := gate(t, c, func(o *client.GateOptions) { o.Outage = outage })
		if resp := visit(t.Context(), g, new(served), "after close"); resp.StatusCode != want {
			t.Errorf("a gate whose client is closed: %d, want %d", resp.StatusCode, want)
		}
	}
	if n := counted(t, b.client(), "after close"); n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}

// TestEndedContextsCountNothing makes calls whose context has ended before.
func TestEndedContextsCountNothing(t *testing.T) {
	b := newBed(t, 1)
	c := b.client()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, err := c.Add(ended, client.AddRequest{Key: "ended"})
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatalf("an add: %v", err)
		}
	}
	addOne(t, c, "ended")
	expect(t, c, "ended", 1)
}

// BenchmarkAdd counts through three nodes in this process: client, nodes and network share its
// CPUs. With owners, adds go straight to them; without, to any node, which forwards two of three.
// Alone is a single node that owns all keys.
func BenchmarkAdd(b *testing.B) {
	for _, mode := range []struct {
		name  string
		nodes int
		only  bool
	}{{"alone", 1, false}, {"owners", 3, false}, {"forwarded", 3, true}} {
		b.Run(mode.name, func(b *testing.B) {
			bed := newBed(b, mode.nodes)
			c := bed.client(func(o *client.Options) { o.OnlyAddresses = mode.only })
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
				_, err := c.Add(b.Context(), client.AddRequest{Key: keys[i]})
				must.Succeed(b, err)
			}
			var next atomic.Int64
			b.SetParallelism(64)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(7919)); pb.Next(); i++ {
					if _, err := c.Add(b.Context(),
						client.AddRequest{Key: keys[i%len(keys)]}); err != nil {
						b.Error(err)
					}
				}
			})
			b.StopTimer()
			s := c.Stats()
			b.ReportMetric(float64(s.Ops)/float64(s.Requests), "ops/request")
		})
	}
}

// BenchmarkRead reads the answer to an acquire with two limits.
func BenchmarkRead(b *testing.B) {
	o := asked()[3]
	text := []byte(`{"allowed":true,"limits":[{"window":"1m","max":15,"count":4,"remaining":11},` +
		`{"window":"24h","max":50,"count":15,"remaining":35}],"retry_after_ms":0,"source":"memory"}`)
	var p fastjson.Parser
	b.ReportAllocs()
	for b.Loop() {
		if r := o.ReadWith(&p, text); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

// BenchmarkBody encodes an acquire with two limits.
func BenchmarkBody(b *testing.B) {
	o := asked()[3]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Body(); err != nil {
			b.Fatal(err)
		}
	}
}
