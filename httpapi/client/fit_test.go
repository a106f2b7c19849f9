package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/testing/must"
)

// tooLarge is the problem of a request that a node finds too large.
const tooLarge = `{"type":"urn:twotier:problem:too-large","title":"Request body too large",` +
	`"status":413,"detail":"send it in parts"}`

// TestTooLargeBatchesAreHalved uses a node that reads few operations at a time. Each operation is
// executed once, in order within one call, and the client remembers the accepted size.
func TestTooLargeBatchesAreHalved(t *testing.T) {
	const most, calls, ops = 7, 300, 50
	var refusals atomic.Int64
	var mu sync.Mutex
	var seen []string // the executed keys, in order
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Twotier-Process", "p")
		keys := strings.Split(string(body), `"key":"`)[1:]
		if len(keys) > most {
			refusals.Add(1)
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, tooLarge)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, k := range keys {
			key, _, _ := strings.Cut(k, `"`)
			seen = append(seen, key)
		}
		fmt.Fprintf(w, `{"results":[%s]}`, strings.TrimSuffix(strings.Repeat(
			`{"counts":[],"source":"memory"},`, len(keys)), ","))
	}, func(*client.Options) {})
	key := strings.Repeat("k", 200) // some calls exceed leastFit
	var asking sync.WaitGroup
	for i := range calls {
		asking.Go(func() {
			_, err := c.Add(t.Context(), client.AddRequest{Key: fmt.Sprint(i, key)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	many := make([]client.Op, ops)
	for i := range many {
		many[i].Add = &client.AddRequest{Key: fmt.Sprint("op", i)}
	}
	results, err := c.Batch(t.Context(), many)
	must.Succeed(t, err)
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("operation %d: %v", i, r.Err)
		}
	}
	times, last := map[string]int{}, -1
	for _, k := range seen {
		times[k]++
		var i int
		if n, _ := fmt.Sscanf(k, "op%d", &i); n == 1 {
			if i < last {
				t.Errorf("operation %d is carried out after %d", i, last)
			}
			last = i
		}
	}
	for k, n := range times {
		if n != 1 {
			t.Errorf("%.9s is carried out %d times", k, n)
		}
	}
	if len(times) != calls+ops {
		t.Errorf("%d keys are carried out, want %d", len(times), calls+ops)
	}
	t.Logf("%d requests were too large", refusals.Load())
}

// TestClientRemembersWhatFits sends one large batch after the other to a node that accepts a part
// of it. Most requests have an accepted size.
func TestClientRemembersWhatFits(t *testing.T) {
	var refused, accepted atomic.Int64
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Twotier-Process", "p")
		if len(body) > 50<<10 {
			refused.Add(1)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, tooLarge)
			return
		}
		accepted.Add(1)
		fmt.Fprintf(w, `{"results":[%s]}`, strings.TrimSuffix(strings.Repeat(
			`{"counts":[],"source":"memory"},`, strings.Count(string(body), `"key"`)), ","))
	}, func(*client.Options) {})
	for range 20 {
		ops := make([]client.Op, 1000)
		for i := range ops {
			ops[i].Add = &client.AddRequest{Key: strings.Repeat("k", 200)}
		}
		results, err := c.Batch(t.Context(), ops)
		must.Succeed(t, err)
		for _, r := range results {
			must.Succeed(t, r.Err)
		}
	}
	if r, a := refused.Load(), accepted.Load(); r > a/4 {
		t.Errorf("%d of %d requests were too large", r, r+a)
	}
}

// TestCrowdAtAGate requests thousands of decisions at once from a server with little memory, with
// many limits and long keys. No request passes without a decision, and none is an error: a request
// that the server can't read counts as overload.
func TestCrowdAtAGate(t *testing.T) {
	b := newBed(t, 1)
	web, err := httpapi.New(httpapi.Options{Service: b.nodes[0].node, Listen: "127.0.0.1:0",
		Limits: listener.Limits{MaxMemory: 2 << 20, RequestTimeout: time.Second}})
	must.Succeed(t, err)
	must.Succeed(t, web.Open(t.Context()))
	defer func() { must.Succeed(t, web.Close(context.Background())) }()
	c, err := client.New(client.Options{Addresses: []string{web.Addr().String()},
		OnlyAddresses: true, Timeout: time.Minute, AttemptTimeout: time.Minute})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, c.Close(context.Background())) }()
	var limits []client.Limit
	for i := range 16 {
		limits = append(limits, client.Limit{Window: time.Duration(i+1) * time.Minute,
			Max: 1 << 20})
	}
	var errs sync.Map
	g := gate(t, c, func(o *client.GateOptions) {
		o.Outage, o.Wait, o.Limits = client.FailOpen, time.Minute, limits
		o.OnError = func(_ string, err error) { errs.Store(err.Error(), err) }
	})
	var mu sync.Mutex
	got := map[int]int{}
	var asking sync.WaitGroup
	for i := range 1000 {
		asking.Go(func() {
			key := fmt.Sprint(i, strings.Repeat("x", 200))
			d := g.Decide(t.Context(), []client.Check{{Key: key}})
			if d.Passes() && d.Policy == "" {
				t.Error("passed without a decision")
			}
			mu.Lock()
			defer mu.Unlock()
			got[d.Status]++
		})
	}
	asking.Wait()
	errs.Range(func(_, err any) bool {
		if !errors.Is(err.(error), client.ErrOverloaded) {
			t.Error(err)
		}
		return true
	})
	if got[200]+got[429] != 1000 || got[200] == 0 {
		t.Errorf("statuses: %v", got)
	}
	t.Logf("statuses: %v", got)
}
