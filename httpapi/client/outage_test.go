package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// busy is a node that does not finish operations on some keys.
type busy struct {
	httpapi.Service
	until chan struct{}
}

func (b *busy) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	if strings.HasPrefix(string(ops[0].Checks[0].Key), "endless") {
		<-b.until
	}
	b.Service.DoAll(ctx, ops, res)
}

// overloaded returns a client of a server whose memory others use until the test ends. By default
// the server would make further requests wait for a minute.
func overloaded(t *testing.T, attempt time.Duration) *client.Client {
	t.Helper()
	service := &busy{newBed(t, 1).nodes[0].node, make(chan struct{})}
	web, err := httpapi.New(httpapi.Options{Service: service, Listen: "127.0.0.1:0",
		Limits: listener.Limits{MaxMemory: 1 << 20, RequestTimeout: 2 * time.Minute}})
	must.Succeed(t, err)
	must.Succeed(t, web.Open(t.Context()))
	var hogs sync.WaitGroup
	t.Cleanup(func() {
		close(service.until)
		hogs.Wait()
		must.Succeed(t, web.Close(context.Background()))
	})
	c := newClient(t, client.Options{Addresses: []string{web.Addr().String()},
		OnlyAddresses: true, Timeout: 20 * time.Second, AttemptTimeout: attempt})
	must.Succeed(t, c.Refresh(t.Context()))
	limits := strings.TrimSuffix(strings.Repeat(`{"window":"1m","max":9},`, 16), ",")
	checks := strings.TrimSuffix(strings.Repeat(`{"key":"endless","limits":[`+limits+`]},`, 8), ",")
	hog := `{"ops":[{"op":"acquire","checks":[` + checks + `]}]}`
	for range 8 {
		hogs.Go(func() {
			resp, err := http.Post("http://"+web.Addr().String()+"/v1/batch", "application/json",
				strings.NewReader(hog))
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for {
		if _, err := c.Acquire(t.Context(), large("first")); err != nil {
			t.Logf("it is overloaded: %v", err)
			return c
		}
	}
}

// large returns a request that takes memory to answer.
func large(key string) client.AcquireRequest {
	return client.AcquireRequest{Checks: largeChecks(key)}
}

func largeChecks(key string) (checks []client.Check) {
	for i := range 8 {
		c := client.Check{Key: fmt.Sprint(key, "-", i)}
		for j := range 16 {
			c.Limits = append(c.Limits, client.Limit{
				Window: time.Duration(j+1) * time.Minute, Max: 1 << 20})
		}
		checks = append(checks, c)
	}
	return checks
}

// TestOverloadIsAnsweredInTime calls a server that would let the client wait for longer than an
// attempt may take.
func TestOverloadIsAnsweredInTime(t *testing.T) {
	c := overloaded(t, 4*time.Second)
	if _, err := c.Acquire(t.Context(), large("k")); !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("%v, want the server to say that it is overloaded", err)
	}
}

// TestOverloadDoesNotOpenAGate calls the same server through a gate that fails open, and waits for
// a shorter time than the server.
func TestOverloadDoesNotOpenAGate(t *testing.T) {
	c := overloaded(t, time.Second)
	g := gate(t, c, func(o *client.GateOptions) { o.Wait = 50 * time.Millisecond })
	var opened atomic.Int64
	var crowd sync.WaitGroup
	for i := range 200 {
		crowd.Go(func() {
			d := g.Decide(t.Context(), largeChecks(fmt.Sprint("k", i)))
			if d.Passes() {
				opened.Add(1)
			} else if d.Status != 429 || d.RetryAfter == 0 {
				t.Errorf("status %d, to be tried again after %v", d.Status, d.RetryAfter)
			}
		})
	}
	crowd.Wait()
	if n := opened.Load(); n > 0 {
		t.Errorf("%d of 200 passed", n)
	}
}

// moody is a server that answers according to its mood.
type moody struct {
	mood atomic.Value // of string
	done chan struct{}
}

func (m *moody) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	mood := m.mood.Load().(string)
	switch {
	case mood == "silent", mood == "slow" && r.URL.Path == "/v1/batch":
		<-m.done
		return
	case r.URL.Path != "/v1/batch":
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Twotier-Process", "moody")
	fmt.Fprintf(w, `{"results":[{"error":{"type":"urn:twotier:problem:some","title":"no",`+
		`"status":%s}}]}`, mood)
}

// TestAGateOpensWhenNobodyAnswers calls a server that answers without a decision, then is slow,
// then silent, then gone. A gate that fails open does so when the server is silent for the client's
// timeout, or gone.
func TestAGateOpensWhenNobodyAnswers(t *testing.T) {
	for name, timeout := range map[string]time.Duration{
		"gone": time.Minute, "silent": 500 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			m := &moody{done: make(chan struct{})}
			m.mood.Store("429")
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must.Succeed(t, err)
			srv := &http.Server{Handler: http.HandlerFunc(m.serve)}
			go func() { _ = srv.Serve(ln) }()
			defer srv.Close()
			defer close(m.done)
			c := newClient(t, client.Options{Addresses: []string{ln.Addr().String()},
				Timeout: timeout, AttemptTimeout: 50 * time.Millisecond})
			status := func(outage client.Outage) int {
				g := gate(t, c, func(o *client.GateOptions) {
					o.Wait, o.Outage = 100*time.Millisecond, outage
				})
				d := g.Decide(t.Context(), []client.Check{{Key: "ann"}})
				if (d.RetryAfter == 0) != d.Passes() {
					t.Errorf("%d, to be tried again after %v", d.Status, d.RetryAfter)
				}
				return d.Status
			}
			until := func(want int) {
				t.Helper()
				for by := time.Now().Add(time.Minute); status(client.FailOpen) != want; {
					if time.Now().After(by) {
						t.Fatalf("status %d, want %d", status(client.FailOpen), want)
					}
				}
			}
			until(429)
			m.mood.Store("503")
			until(503)
			if name == "gone" {
				m.mood.Store("slow")
				for i := range 10 {
					outage := client.FailOpen + client.Outage(i%2)
					if got := status(outage); got != 429 {
						t.Errorf("slow, call %d: %d", i, got)
					}
				}
				must.Succeed(t, srv.Close())
			} else {
				m.mood.Store("silent")
			}
			until(200)
			if got := status(client.FailClosed); got != 503 {
				t.Errorf("a gate that fails closed: %d", got)
			}
		})
	}
}

// TestAGateHearsWhoAnswers has two nodes, one of which is gone and the other can't decide.
func TestAGateHearsWhoAnswers(t *testing.T) {
	m := &moody{done: make(chan struct{})}
	m.mood.Store("503")
	srv := httptest.NewServer(http.HandlerFunc(m.serve))
	defer srv.Close()
	c := newClient(t, client.Options{Timeout: time.Minute,
		Addresses: []string{"127.0.0.1:1", srv.Listener.Addr().String()}})
	g := gate(t, c, func(o *client.GateOptions) { o.Wait = time.Minute })
	for range 20 {
		d := g.Decide(t.Context(), []client.Check{{Key: "ann"}})
		if d.Status != 503 || d.RetryAfter == 0 {
			t.Errorf("status %d, to be tried again after %v", d.Status, d.RetryAfter)
		}
	}
}
