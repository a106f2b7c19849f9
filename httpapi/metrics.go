package httpapi

import (
	"runtime/metrics"
	"strconv"

	"github.com/valyala/fasthttp"
)

// metrics renders what the node counts about itself in the Prometheus text format.
func (s *Server) metrics(ctx *fasthttp.RequestCtx) *problem {
	st := s.service.Stats()
	var e exposition
	e.node(st)
	e.cluster(st)
	e.counter(st.Counter)
	e.store(st)
	s.transport(&e)
	e.runtime()
	ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	ctx.Response.SetBodyRaw(e.b)
	return nil
}

// transport renders what the server itself counts.
func (s *Server) transport(e *exposition) {
	e.head("twotier_http_requests_total", "counter", "HTTP requests answered, by status code.")
	for code := range s.codes {
		if n := s.codes[code].Load(); n > 0 {
			e.sample("twotier_http_requests_total", n, "code", strconv.Itoa(code))
		}
	}
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	e.gauge("twotier_sessions", "Sessions of clients whose last request is remembered.", int64(s.sessions.len()))
	e.total("twotier_session_repeats_total", "Requests that were sent again and answered without being carried out again.",
		s.sessions.repeats.Load())
	e.gauge("twotier_http_connections", "Open HTTP connections.", int64(open))
	e.gauge("twotier_http_memory_bytes", "Memory taken for what is read of clients and answered to them, beyond what any connection has.",
		s.allowance.reading.taken()+s.allowance.answering.taken())
}

// exposition is a page of metrics while it is being written.
type exposition struct{ b []byte }

// head begins a metric.
func (e *exposition) head(name, kind, help string) {
	e.b = append(e.b, "# HELP "...)
	e.b = append(e.b, name...)
	e.b = append(e.b, ' ')
	e.b = append(e.b, help...)
	e.b = append(e.b, "\n# TYPE "...)
	e.b = append(e.b, name...)
	e.b = append(e.b, ' ')
	e.b = append(e.b, kind...)
	e.b = append(e.b, '\n')
}

// sample writes one value; labels are names and values in turn.
func (e *exposition) sample(name string, v int64, labels ...string) {
	e.series(name, labels)
	e.b = append(strconv.AppendInt(e.b, v, 10), '\n')
}

func (e *exposition) series(name string, labels []string) {
	e.b = append(e.b, name...)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		e.b = append(e.b, sep)
		e.b = append(e.b, labels[i]...)
		e.b = append(e.b, '=')
		e.b = strconv.AppendQuote(e.b, labels[i+1])
	}
	if len(labels) > 0 {
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ' ')
}

func (e *exposition) gauge(name, help string, v int64) {
	e.head(name, "gauge", help)
	e.sample(name, v)
}

func (e *exposition) total(name, help string, v int64) {
	e.head(name, "counter", help)
	e.sample(name, v)
}

// float is gauge or total for a value that is not whole.
func (e *exposition) float(name, kind, help string, v float64) {
	e.head(name, kind, help)
	e.series(name, nil)
	e.b = append(strconv.AppendFloat(e.b, v, 'g', -1, 64), '\n')
}

// whether is the value of a gauge that says yes or no.
func whether(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// runtime renders the basics of the Go runtime, under the names that its Prometheus collectors use where there is one.
func (e *exposition) runtime() {
	s := []metrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/gc/heap/goal:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/allocs:objects"},
		{Name: "/sched/pauses/total/gc:seconds"},
	}
	metrics.Read(s)
	whole := func(i int) int64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(s[i].Value.Uint64())
	}
	e.gauge("go_goroutines", "Number of goroutines that currently exist.", whole(0))
	e.gauge("go_memstats_heap_alloc_bytes", "Bytes of live and not yet collected heap objects.", whole(1))
	e.gauge("go_memstats_sys_bytes", "Bytes of memory obtained from the system.", whole(2))
	e.gauge("go_memstats_next_gc_bytes", "Heap size at which the next collection ends.", whole(3))
	e.total("go_gc_cycles_total", "Completed garbage collections.", whole(4))
	e.total("go_memstats_mallocs_total", "Heap objects allocated.", whole(5))
	if s[6].Value.Kind() == metrics.KindFloat64Histogram {
		e.float("twotier_gc_pause_max_seconds", "gauge", "Upper bound of the longest pause for garbage collection.",
			longest(s[6].Value.Float64Histogram()))
	}
}

// longest returns the upper bound of the last bucket that is not empty.
func longest(h *metrics.Float64Histogram) float64 {
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if h.Counts[i] > 0 {
			if i+2 == len(h.Buckets) { // its upper bound is infinite
				return h.Buckets[i]
			}
			return h.Buckets[i+1]
		}
	}
	return 0
}
