package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/race"
)

// hot are the requests whose speed matters most.
var hot = []struct{ name, request, body string }{
	{"add", "POST /v1/add", `{"key":"user:1234567"}`},
	{"addLimits", "POST /v1/add",
		`{"ns":"default","key":"user:1234567","n":1,"limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`},
	{"acquire", "POST /v1/acquire",
		`{"key":"user:1234567","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`},
	{"count", "GET /v1/count?key=user:1234567&window=1m,1h,24h", ""},
}

// warm answers a request often enough for all pooled memory to have grown.
func warm(s *httpapi.Server, ctx *fasthttp.RequestCtx) {
	for range 100 {
		ctx.Response.Reset()
		s.Handle(ctx)
	}
}

// allocations returns the average number of allocations of a call. The runtime counts those of all
// goroutines, servers of other tests may still be stopping, and a garbage collection empties pools.
// So the least of several short series counts.
func allocations(runs int, call func()) float64 {
	least := testing.AllocsPerRun(runs, call)
	for range 30 {
		if least > 0 {
			least = min(least, testing.AllocsPerRun(runs, call))
		}
	}
	return least
}

// allocatesNothing answers a request many times.
func allocatesNothing(t *testing.T, name string, s *httpapi.Server, ctx *fasthttp.RequestCtx) {
	t.Helper()
	if race.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	warm(s, ctx)
	if allocs := allocations(100, func() {
		ctx.Response.Reset()
		s.Handle(ctx)
	}); allocs > 0 || ctx.Response.StatusCode() != 200 {
		t.Errorf("%s: %v allocations, %d %s", name, allocs, ctx.Response.StatusCode(),
			ctx.Response.Body())
	}
}

// TestHotPathAllocatesNothing answers requests with a token and without one, and with a tracer of
// requests that are part of no trace.
func TestHotPathAllocatesNothing(t *testing.T) {
	store, texts := tokens(t, "a count,read default")
	traced, _ := recording(t, newFake())
	for _, tt := range hot {
		allocatesNothing(t, tt.name, newServer(t, newFake()), newRequest(tt.request, tt.body))
		allocatesNothing(t, tt.name+", traced", traced, newRequest(tt.request, tt.body))
		ctx := newRequest(tt.request, tt.body)
		ctx.Request.Header.Set("Authorization", "Bearer "+texts["a"])
		allocatesNothing(t, tt.name+", token", serverOf(t, httpapi.Options{Tokens: store}), ctx)
	}
}

// TestBatchesReuseTheirMemory sends batches of every size, including ones that need more memory for
// their operations than for their text.
func TestBatchesReuseTheirMemory(t *testing.T) {
	for _, size := range []int{10, 50, 200, 1000, 3000} {
		allocatesNothing(t, fmt.Sprint(size, " operations"), newServer(t, newFake()),
			newRequest("POST /v1/batch", string(benchBatch(size, true))))
	}
}

// benchmark answers a request of so many operations.
func benchmark(b *testing.B, s *httpapi.Server, ctx *fasthttp.RequestCtx, ops int) {
	warm(s, ctx)
	b.ReportAllocs()
	for b.Loop() {
		ctx.Response.Reset()
		ctx.ResetUserValues()
		s.Handle(ctx)
	}
	b.ReportMetric(float64(b.N*ops)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkHandle answers requests without a token and with one.
func BenchmarkHandle(b *testing.B) {
	store, texts := tokens(b, "a count,read default")
	for _, tt := range hot {
		b.Run(tt.name, func(b *testing.B) {
			benchmark(b, newServer(b, newFake()), newRequest(tt.request, tt.body), 1)
		})
		b.Run(tt.name+"/token", func(b *testing.B) {
			ctx := newRequest(tt.request, tt.body)
			ctx.Request.Header.Set("Authorization", "Bearer "+texts["a"])
			benchmark(b, serverOf(b, httpapi.Options{Tokens: store}), ctx, 1)
		})
	}
}

// BenchmarkBatch reads, executes and answers 100 and 1,000 operations.
func BenchmarkBatch(b *testing.B) {
	for _, tt := range []struct {
		name   string
		size   int
		limits bool
	}{{"add", 1000, false}, {"acquire2", 1000, true}, {"addOf100", 100, false}} {
		b.Run(tt.name, func(b *testing.B) {
			benchmark(b, newServer(b, newFake()), newRequest("POST /v1/batch",
				string(benchBatch(tt.size, tt.limits))), tt.size)
		})
	}
}

// benchBatch is a batch of n operations; the second half of each kind of benchmark carries limits.
func benchBatch(n int, limits bool) []byte {
	var b strings.Builder
	b.WriteString(`{"quiet":true,"ops":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if limits {
			fmt.Fprintf(&b,
				`{"op":"acquire","key":"user:%07d","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`, i%500)
		} else {
			fmt.Fprintf(&b, `{"op":"add","key":"user:%07d","n":1}`, i%500)
		}
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// jsonOp is an operation as encoding/json decodes it.
type jsonOp struct {
	Op, Ack, NS, Key string
	N, TS            int64
	Limits           []struct {
		Window string
		Max    int64
	}
}

// BenchmarkParseBatch compares the scanner with general-purpose readers on a batch of 1,000
// operations. The latter only decode the operations and check nothing.
func BenchmarkParseBatch(b *testing.B) {
	for _, limits := range []bool{false, true} {
		body := benchBatch(1000, limits)
		name := map[bool]string{false: "add", true: "acquire2"}[limits]
		b.Run(name+"/scanner", func(b *testing.B) { perOp(b, body, scannerParse()) })
		b.Run(name+"/fastjson", func(b *testing.B) { perOp(b, body, fastjsonParse()) })
		b.Run(name+"/encoding", func(b *testing.B) { perOp(b, body, encodingParse) })
	}
}

func perOp(b *testing.B, body []byte, parse func([]byte) int) {
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if parse(body) != 1000 {
			b.Fatal("not all read")
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "ops/s")
}

func scannerParse() func([]byte) int {
	var d codec.Decoder
	return func(body []byte) int {
		_ = d.DecodeBatch(body)
		return len(d.Ops)
	}
}

func fastjsonParse() func([]byte) int {
	var p fastjson.Parser
	var ops []twotier.Op
	var checks []twotier.Check
	var limits []twotier.Limit
	return func(body []byte) int {
		v, err := p.ParseBytes(body)
		if err != nil {
			return 0
		}
		ops, checks, limits = ops[:0], checks[:0], limits[:0]
		for _, o := range v.GetArray("ops") {
			op := twotier.Op{Kind: twotier.Add}
			if string(o.GetStringBytes("op")) == "acquire" {
				op.Kind = twotier.Acquire
			}
			c := twotier.Check{NS: o.GetStringBytes("ns"), Key: o.GetStringBytes("key"),
				N: o.GetInt64("n")}
			for _, l := range o.GetArray("limits") {
				ms, _ := request.ParseWindow(l.GetStringBytes("window"))
				limits = append(limits, twotier.Limit{Window: ms, Max: l.GetInt64("max")})
			}
			checks = append(checks, c)
			ops = append(ops, op)
		}
		return len(ops)
	}
}

func encodingParse(body []byte) int {
	var v struct {
		Quiet bool
		Ops   []jsonOp
	}
	if json.Unmarshal(body, &v) != nil {
		return 0
	}
	return len(v.Ops)
}
