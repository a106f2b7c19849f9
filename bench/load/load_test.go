package load_test

import (
	"bytes"
	"encoding/json"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier/bench/load"
)

// fake answers like twotier and counts what it was asked.
type fake struct {
	mu    sync.Mutex
	calls int
	keys  map[string]int
	stall time.Duration
}

func (f *fake) handle(ctx *fasthttp.RequestCtx) {
	var call struct {
		Key string
		Ops []struct{ Op, Key string }
	}
	if err := json.Unmarshal(ctx.PostBody(), &call); err != nil {
		ctx.Error(err.Error(), 400)
		return
	}
	f.mu.Lock()
	f.calls++
	if call.Key != "" {
		f.keys[call.Key]++
	}
	for _, o := range call.Ops {
		f.keys[o.Key]++
	}
	stall := f.stall
	f.stall = 0
	f.mu.Unlock()
	time.Sleep(stall)
	ctx.SetBodyString(`{"allowed":true,"errors":[]}`)
}

func start(t *testing.T, f *fake) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: f.handle}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return listener.Addr().String()
}

func TestEveryCallIsCounted(t *testing.T) {
	for _, op := range []string{load.OpAdd, load.OpAcquire, load.OpBatch, load.OpBatchAcquire} {
		t.Run(op, func(t *testing.T) {
			f := &fake{keys: make(map[string]int)}
			r, err := load.Run(t.Context(), load.Options{
				Addr: start(t, f), Op: op, Keys: "distinct", PerCall: 7, Conns: 3, Duration: 100 * time.Millisecond,
			})
			if err != nil || r.Err() != nil {
				t.Fatal(err, r.Err())
			}
			if r.Calls == 0 || r.Calls != int64(f.calls) || r.Operations != int64(len(f.keys)) {
				t.Errorf("%d calls of %d operations; the server saw %d with %d keys", r.Calls, r.Operations, f.calls, len(f.keys))
			}
		})
	}
}

func TestStallShowsInOpenLoop(t *testing.T) {
	f := &fake{keys: make(map[string]int), stall: 300 * time.Millisecond}
	r, err := load.Run(t.Context(), load.Options{
		Addr: start(t, f), Conns: 1, Rate: 100, Duration: time.Second,
	})
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	// The call that stalled and the thirty that were due meanwhile waited 150 ms on average.
	if r.Calls+r.Unsent != 100 || r.Latency.P90 < 100_000 {
		t.Errorf("%d calls, %d unsent, %+v", r.Calls, r.Unsent, r.Latency)
	}
}

func TestRefusalIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.Error("no", 503) }}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Shutdown() }()
	r, err := load.Run(t.Context(), load.Options{Addr: listener.Addr().String(), Conns: 2, Duration: time.Second})
	if err != nil || r.Errors != 2 || r.Calls != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRequestIsPatchedInPlace(t *testing.T) {
	r := load.NewRequest("h", "batch", 2, true)
	r.SetKey(0, 0xabc)
	r.SetKey(1, 1<<63)
	r.SetTime(0, 1_700_000_000_001)
	r.SetTime(1, 1_700_000_000_002)
	want := []byte(`{"quiet":true,"ops":[{"op":"add","key":"0000000000000abc","ts":1700000000001},` +
		`{"op":"add","key":"8000000000000000","ts":1700000000002}]}`)
	if got := r.Body(); !bytes.Equal(got, want) {
		t.Errorf("%s", got)
	}
}

func TestWrk(t *testing.T) {
	if !load.HaveWrk() {
		t.Skip("there is no wrk on this machine")
	}
	f := &fake{keys: make(map[string]int)}
	r, err := load.RunWrk(t.Context(), load.Options{Addr: start(t, f), Conns: 4, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// What is under way when wrk stops was counted by the server only.
	if d := int64(f.calls) - r.Calls; r.Calls == 0 || d < 0 || d > 4 || r.Latency.P99 == 0 || len(f.keys) < 100 {
		t.Errorf("%d calls, %d keys; wrk says %+v", f.calls, len(f.keys), r)
	}
}
