package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

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

// TestProxyLosesTheAnswer has a proxy report that it got no answer, for one attempt or for all:
// either the request is sent again under its number, or its outcome is unknown.
func TestProxyLosesTheAnswer(t *testing.T) {
	for _, status := range []int{http.StatusBadGateway, http.StatusGatewayTimeout} {
		for name, test := range map[string]struct {
			lost   int32
			within time.Duration
			want   error
		}{"once": {1, time.Minute, nil}, "always": {1 << 30, time.Second,
			client.ErrUnknownOutcome}} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				var attempts atomic.Int32
				c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Header.Get("Twotier-Sequence") == "1":
						w.Header().Set("Twotier-Process", "p")
						fmt.Fprint(w, `{"results":[]}`)
					case r.Header.Get("Twotier-Sequence") == "3" && attempts.Add(1) <= test.lost:
						w.WriteHeader(status)
					default:
						w.Header().Set("Twotier-Process", "p")
						fmt.Fprint(w, `{"results":[{"source":"memory"}]}`)
					}
				}, func(o *client.Options) { o.Lanes = 1 })
				_, err := c.Add(t.Context(), client.AddRequest{Key: "a"})
				must.Succeed(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				if _, err := c.Add(ctx, client.AddRequest{Key: "a"}); !errors.Is(err, test.want) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		}
	}
}

// TestSilentNodeIsLeftAfterOneAttempt has a node accept requests and not answer: after the first,
// its reads are given back.
func TestSilentNodeIsLeftAfterOneAttempt(t *testing.T) {
	var attempts atomic.Int32
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // so that the server notices when the client hangs up
		if r.Header.Get("Twotier-Sequence") == "1" {
			w.Header().Set("Twotier-Process", "p")
			fmt.Fprint(w, `{"results":[]}`)
			return
		}
		attempts.Add(1)
		<-r.Context().Done()
	}, func(o *client.Options) { o.AttemptTimeout = time.Second })
	results := c.Carry(client.Op{Count: &client.CountRequest{Key: "a",
		Windows: []time.Duration{time.Minute}}})
	if n := attempts.Load(); results[0].Err == nil || n != 1 {
		t.Errorf("%v after %d attempts, want an error after one", results[0].Err, n)
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
	c, err := client.New(o)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, c.Close(context.Background())) })
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
