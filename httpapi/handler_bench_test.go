package httpapi_test

import (
	"testing"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
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

func TestHotPathAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	for _, tt := range hot {
		s := newServer(t, newFake())
		ctx := newRequest(tt.request, tt.body)
		warm(s, ctx)
		allocs := allocations(100, func() {
			ctx.Response.Reset()
			s.Handle(ctx)
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations", tt.name, allocs)
		}
		if ctx.Response.StatusCode() != 200 {
			t.Errorf("%s: %s", tt.name, ctx.Response.Body())
		}
	}
}

// TestBatchesReuseTheirMemory sends batches of every size, including ones that need more memory for
// their operations than for their text.
func TestBatchesReuseTheirMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	for _, size := range []int{10, 50, 200, 1000, 3000} {
		s := newServer(t, newFake())
		ctx := newRequest("POST /v1/batch", string(benchBatch(size, true)))
		warm(s, ctx)
		allocs := allocations(10, func() {
			ctx.Response.Reset()
			s.Handle(ctx)
		})
		if allocs > 0 {
			t.Errorf("%d operations: %v allocations", size, allocs)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	for _, tt := range hot {
		b.Run(tt.name, func(b *testing.B) {
			s := newServer(b, newFake())
			ctx := newRequest(tt.request, tt.body)
			warm(s, ctx)
			b.ReportAllocs()
			for b.Loop() {
				ctx.Response.Reset()
				s.Handle(ctx)
			}
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
			s := newServer(b, newFake())
			ctx := newRequest("POST /v1/batch", string(benchBatch(tt.size, tt.limits)))
			warm(s, ctx)
			b.ReportAllocs()
			for b.Loop() {
				ctx.Response.Reset()
				s.Handle(ctx)
			}
			b.ReportMetric(float64(b.N*tt.size)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}
