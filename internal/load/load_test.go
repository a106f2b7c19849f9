package load_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/load"
)

// fake is a server that answers like twotier and records the requests.
type fake struct {
	mu     sync.Mutex
	keys   map[string]int
	bodies []string
	answer func(w http.ResponseWriter)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct {
		Key string
		Ops []struct{ Op, Key string }
	}
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.bodies = append(f.bodies, r.URL.Path+" "+string(body))
	if request.Key != "" {
		f.keys[request.Key]++
	}
	for _, op := range request.Ops {
		f.keys[op.Key]++
	}
	f.mu.Unlock()
	f.answer(w)
}

func start(t *testing.T, answer func(w http.ResponseWriter)) (*fake, string) {
	f := &fake{keys: map[string]int{}, answer: answer}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server.URL
}

func text(body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = io.WriteString(w, body) }
}

// mustRun runs again for longer if nothing was answered in time, because the machine stood still.
func mustRun(t *testing.T, o load.Options) load.Result {
	t.Helper()
	for range 8 {
		result, err := load.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if result.Requests > 0 || len(result.Errors) > 0 {
			return result
		}
		o.Duration *= 2
	}
	t.Fatalf("no answer within %v", o.Duration)
	return load.Result{}
}

func TestClosedLoopCountsWhatWasSent(t *testing.T) {
	for _, dist := range load.Dists() {
		t.Run(dist, func(t *testing.T) {
			f, url := start(t, text(`{"key":"x","counts":[],"over":false,"source":"memory"}`))
			r := mustRun(t, load.Options{URL: url, Dist: dist, Keys: 10, Connections: 3,
				Duration: 100 * time.Millisecond})
			sum := 0
			for key, n := range f.keys {
				if !strings.HasPrefix(key, "bench:") {
					t.Errorf("key %q", key)
				}
				sum += n
			}
			if r.Requests == 0 || r.Operations != r.Requests || int64(sum) != r.Requests ||
				len(r.Errors) != 0 {
				t.Errorf("%d seen, result %+v", sum, r)
			}
			most := map[string]int{"same": 1, "distinct": sum}
			if want, ok := most[dist]; ok && len(f.keys) != want || !ok && len(f.keys) > 10 {
				t.Errorf("%d different keys of %d", len(f.keys), sum)
			}
			if r.Latency.P50 <= 0 || r.Latency.P50 > r.Latency.P99 ||
				r.Latency.P99 > r.Latency.Max {
				t.Errorf("latency %+v", r.Latency)
			}
		})
	}
}

func TestAcquireCountsDecisions(t *testing.T) {
	var n atomic.Int64
	f, url := start(t, func(w http.ResponseWriter) {
		text(`{"allowed":` + map[bool]string{true: "true", false: "false"}[n.Add(1)%2 == 0] +
			`,"limits":[]}`)(w)
	})
	r := mustRun(t, load.Options{URL: url, Op: "acquire", NS: "x", Connections: 1,
		Duration: 50 * time.Millisecond})
	if r.Allowed+r.Refused != r.Requests || r.Refused-r.Allowed > 1 || r.Refused < r.Allowed {
		t.Errorf("result %+v", r)
	}
	if !strings.HasPrefix(f.bodies[0], `/v1/acquire {"ns":"x","key":"bench:`) ||
		!strings.Contains(f.bodies[0], `"limits":[{"window":"1m","max":15}`) {
		t.Errorf("asked %s", f.bodies[0])
	}
}

func TestBatchCountsOperations(t *testing.T) {
	f, url := start(t, text(`{"ops":7,"errors":[{"index":0}],"added":6,"allowed":0,"refused":0}`))
	r := mustRun(t, load.Options{URL: url, Op: "batch", Batch: 7, Connections: 2,
		Duration: 50 * time.Millisecond})
	if r.Operations != r.Requests*6 || r.Errors["operations of a batch"] != r.Requests {
		t.Errorf("result %+v", r)
	}
	if !strings.HasPrefix(f.bodies[0], `/v1/batch {"quiet":true,"ops":[{"op":"add","key":"bench:`) {
		t.Errorf("asked %s", f.bodies[0])
	}
}

func TestOpenLoopKeepsTheRate(t *testing.T) {
	_, url := start(t, text("{}"))
	r := mustRun(t, load.Options{URL: url, Rate: 200, Connections: 5,
		Duration: 500 * time.Millisecond})
	if sent := r.Requests + r.Unsent; r.Requests > 100 || sent < 99 || sent > 101 {
		t.Errorf("%d requests and %d unsent, want 100", r.Requests, r.Unsent)
	}
}

// A server that stalls for half of the run must show in the median, not just in one request.
func TestOpenLoopSeesAStall(t *testing.T) {
	var first atomic.Bool
	_, url := start(t, func(w http.ResponseWriter) {
		if first.CompareAndSwap(false, true) {
			time.Sleep(300 * time.Millisecond)
		}
		text("{}")(w)
	})
	r := mustRun(t, load.Options{URL: url, Rate: 500, Connections: 1,
		Duration: 500 * time.Millisecond})
	if r.Latency.P50 < 50_000 || r.Service.P50 >= r.Latency.P50 {
		t.Errorf("latency %+v, service %+v", r.Latency, r.Service)
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name    string
		answer  func(http.ResponseWriter)
		op      string
		timeout time.Duration
		want    string
	}{
		{"status", func(w http.ResponseWriter) { w.WriteHeader(503) }, "add", time.Minute,
			"status 503"},
		{"not JSON", text("<html>"), "batch", time.Minute, "not a JSON answer"},
		{"slow", func(http.ResponseWriter) { time.Sleep(200 * time.Millisecond) }, "add",
			50 * time.Millisecond, "timeout"},
		{"closed", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "add", time.Minute,
			"connection closed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, url := start(t, test.answer)
			r := mustRun(t, load.Options{URL: url, Op: test.op, Connections: 1,
				Duration: 60 * time.Millisecond, Timeout: test.timeout})
			if r.Requests != 0 || r.Errors[test.want] == 0 || len(r.Errors) != 1 {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	_, url := start(t, text(""))
	r := mustRun(t, load.Options{URL: "http://127.0.0.1:1", Connections: 1,
		Duration: 50 * time.Millisecond})
	if r.Errors["no connection"] == 0 || len(r.Errors) != 1 {
		t.Errorf("errors %v (%s)", r.Errors, url)
	}
}

func TestCancelEndsTheRun(t *testing.T) {
	_, url := start(t, text("{}"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := load.Run(ctx, load.Options{URL: url, Rate: 1, Duration: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 10*time.Minute {
		t.Errorf("took %v", took)
	}
}

func TestProgress(t *testing.T) {
	_, url := start(t, text("{}"))
	var seen []load.Progress
	mustRun(t, load.Options{
		URL: url, Connections: 1, Duration: 1200 * time.Millisecond,
		Progress: func(p load.Progress) { seen = append(seen, p) },
	})
	if len(seen) == 0 || seen[0].OpsPerSecond <= 0 || seen[0].Latency.Max == 0 {
		t.Errorf("progress %+v", seen)
	}
}

func TestBadOptions(t *testing.T) {
	tests := []struct {
		o    load.Options
		want string
	}{
		{load.Options{}, "URL"},
		{load.Options{URL: "ftp://x"}, "URL"},
		{load.Options{URL: "http://x", Op: "mul"}, `op "mul"`},
		{load.Options{URL: "http://x", Dist: "odd"}, `dist "odd"`},
		{load.Options{URL: "http://x", Keys: -1}, "-1 keys"},
		{load.Options{URL: "http://x", Connections: 10_001}, "10001 connections"},
		{load.Options{URL: "http://x", Batch: 10_001}, "batch of 10001"},
		{load.Options{URL: "http://x", Rate: -1}, "rate -1"},
		{load.Options{URL: "http://x", Duration: -1}, "duration"},
	}
	for _, test := range tests {
		if _, err := load.Run(t.Context(), test.o); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.o, err, test.want)
		}
	}
}
