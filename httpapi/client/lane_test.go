package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	c := newClient(t, client.Options{Addresses: []string{web.Addr().String()},
		OnlyAddresses: true, Timeout: time.Minute, AttemptTimeout: time.Minute})
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

// TestLongAnswers gets answers with surplus values: far too long ones are not read, and nothing of
// the others is kept.
func TestLongAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		ops, numbers int
		want         error
	}{
		"far too much": {1, 1 << 20, client.ErrUnknownOutcome},
		"much":         {5000, 1 << 18, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := verbose(t, strings.Repeat("0,", test.numbers)+"0")
			ops := make([]client.Op, test.ops)
			for i := range ops {
				ops[i].Add = &client.AddRequest{Key: "k"}
			}
			before := heap()
			results, err := c.Batch(t.Context(), ops)
			must.Succeed(t, err)
			if err := results[0].Err; !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if kept := heap() - before; kept > 16<<20 {
				t.Errorf("%d bytes are kept of an answer of %d numbers", kept, test.numbers)
			}
			runtime.KeepAlive(c)
		})
	}
}

// TestAnswersBehindAReadThatWasGivenBack delays the answer to a batch, so that its read is given
// back. The other calls still get their answers.
func TestAnswersBehindAReadThatWasGivenBack(t *testing.T) {
	var attempts atomic.Int32
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // so that the server notices when the client hangs up
		w.Header().Set("Twotier-Process", "p")
		if r.Header.Get("Twotier-Sequence") == "1" {
			fmt.Fprint(w, `{"results":[]}`)
			return
		}
		if attempts.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		if n := strings.Count(string(body), `"op"`); n != 3 {
			t.Errorf("a request with %d operations", n)
		}
		fmt.Fprint(w, `{"results":[{"counts":[{"count":7}],"source":"memory"},`+
			`{"allowed":true,"limits":[{"count":1}],"source":"memory"},`+
			`{"allowed":false,"limits":[{"count":5}],"source":"memory"}]}`)
	}, func(o *client.Options) { o.AttemptTimeout = time.Second })
	limits := []client.Limit{{Window: time.Minute, Max: 5}}
	results := c.Carry(
		client.Op{Count: &client.CountRequest{Key: "a", Windows: []time.Duration{time.Minute}}},
		client.Op{Acquire: &client.AcquireRequest{Check: client.Check{Key: "b", Limits: limits}}},
		client.Op{Acquire: &client.AcquireRequest{Check: client.Check{Key: "c", Limits: limits}}})
	if results[0].Err == nil {
		t.Error("the read was not given back")
	}
	for i, want := range []bool{true, false} {
		r := results[i+1]
		if r.Err != nil || r.Acquire.Allowed != want {
			t.Errorf("acquire %d: %+v, %v, want allowed %v", i, r.Acquire, r.Err, want)
		}
	}
}

// TestProxyLosesTheAnswer has a proxy report, each time, that it got no answer: the outcome is
// unknown. TestAnswersOfAProxy has it do so once.
func TestProxyLosesTheAnswer(t *testing.T) {
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Twotier-Sequence") == "3" {
				w.WriteHeader(status)
				return
			}
			w.Header().Set("Twotier-Process", "p")
			fmt.Fprint(w, `{"results":[{"source":"memory"}]}`)
		}, func(o *client.Options) { o.Lanes = 1 })
		addOne(t, c, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Add(ctx, client.AddRequest{Key: "a"})
		if !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// clientOf returns a client of one server that handles batches with batch.
func clientOf(t *testing.T, batch http.HandlerFunc, with func(*client.Options)) *client.Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/batch" {
			http.NotFound(w, r)
			return
		}
		batch(w, r)
	}))
	t.Cleanup(s.Close)
	o := client.Options{Addresses: []string{s.Listener.Addr().String()}, OnlyAddresses: true,
		Timeout: time.Minute}
	with(&o)
	c := newClient(t, o)
	return c
}

// verbose returns a client of a server that adds these numbers to each first result.
func verbose(t *testing.T, numbers string) *client.Client {
	return clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		const result = `{"counts":[],"source":"memory"}`
		rest := strings.Repeat(","+result, max(0, strings.Count(string(body), `"k"`)-1))
		w.Header().Set("Twotier-Process", "p")
		fmt.Fprintf(w, `{"results":[{"counts":[],"source":"memory","more":[%s]}%s]}`, numbers, rest)
	}, func(o *client.Options) { o.MaxBatch = 5000 })
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	for range 3 { // a pool is emptied by the second run
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// lossy makes connections that lose answers while losing is set: each with this probability, and
// one in five of them silently.
type lossy struct {
	probability float64
	losing      atomic.Bool
	lost        atomic.Int64
}

// dial is for client.Options.
func (l *lossy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, address)
	return &lossyConn{nc, l}, err
}

// lossyConn is a connection with one request in flight at a time, so that each Read belongs to one
// answer.
type lossyConn struct {
	net.Conn
	lossy *lossy
}

// Read drops an answer that has arrived: the server has executed the request. Then it hangs up, or
// goes on waiting.
func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil || !c.lossy.losing.Load() || rand.Float64() >= c.lossy.probability {
		return n, err
	}
	c.lossy.lost.Add(1)
	if rand.IntN(5) > 0 {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	for err == nil {
		_, err = c.Conn.Read(b)
	}
	return 0, err
}
