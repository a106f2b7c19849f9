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
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// TestLongAnswers gets answers with more than was asked for: far too long ones are not read, and of
// the others nothing is kept.
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
			must(t, err)
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

// verbose returns a client of a server that adds so many numbers to each first result.
func verbose(t *testing.T, numbers string) *client.Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/batch" {
			http.NotFound(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		const result = `{"counts":[],"source":"memory"}`
		rest := strings.Repeat(","+result, max(0, strings.Count(string(body), `"k"`)-1))
		w.Header().Set("Twotier-Process", "p")
		fmt.Fprintf(w, `{"results":[{"counts":[],"source":"memory","more":[%s]}%s]}`, numbers, rest)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{Addresses: []string{s.Listener.Addr().String()},
		MaxBatch: 5000, Timeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(context.Background())) })
	return c
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
