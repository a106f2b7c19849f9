package httpapi

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/version"
)

// newRegistry returns the registry of /metrics: the counters of the server and its node, and the
// collectors of the Go runtime, the process and its build. Our own metrics are read on a scrape
// from existing counters, so requests pay nothing for them.
func (s *Server) newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister( // their names don't overlap
		counters{s, time.Now()},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	r.MustRegister(s.opts.Collectors...)
	return r
}

// metrics answers in the client's preferred Prometheus format, text by default.
func (s *Server) metrics(ctx *fasthttp.RequestCtx) *wire.Problem {
	accept := string(ctx.Request.Header.Peek(fasthttp.HeaderAccept))
	format := expfmt.NegotiateAccept(http.Header{fasthttp.HeaderAccept: {accept}},
		expfmt.FmtProtoDelim, expfmt.FmtProtoText, expfmt.FmtProtoCompact, expfmt.FmtText)
	page, err := s.renderMetrics(format, grantOf(ctx))
	if err != nil { // a bug of ours, such as a duplicate metric
		s.log.Error("can't render metrics", "error", err)
		const detail = "the metrics can't be made; this server's log says why"
		return &wire.Problem{Kind: wire.Internal, Detail: detail}
	}
	if p := memoryOf(ctx).takePage(int64(len(page))); p != nil {
		return p
	}
	ctx.SetContentType(string(format))
	ctx.Response.SetBodyRaw(page)
	return nil
}

// renderMetrics renders one page at a time, because each briefly takes several times its size.
func (s *Server) renderMetrics(format expfmt.Format, g *twotier.Grant) ([]byte, error) {
	s.scraping.Lock()
	defer s.scraping.Unlock()
	families, err := s.registry.Gather()
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	encoder := expfmt.NewEncoder(&page, format)
	for _, f := range families {
		if f.Metric = granted(f.Metric, g); len(f.Metric) == 0 {
			continue
		}
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	return page.Bytes(), nil
}

// granted leaves out the metrics of namespaces that a grant does not cover.
func granted(metrics []*dto.Metric, g *twotier.Grant) []*dto.Metric {
	if g == nil || g.AllNamespaces() {
		return metrics
	}
	foreign := func(l *dto.LabelPair) bool {
		return l.GetName() == "ns" && !g.HasNamespace([]byte(l.GetValue()))
	}
	return slices.DeleteFunc(metrics, func(m *dto.Metric) bool {
		return slices.ContainsFunc(m.Label, foreign)
	})
}

// counters collects the counters of a server, its node and their parts.
type counters struct {
	s     *Server
	began time.Time
}

// Describe implements [prometheus.Collector]. It sends nothing, which makes this an unchecked
// collector.
func (counters) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c counters) Collect(ch chan<- prometheus.Metric) {
	st := c.s.health.Stats()
	e := exposition{ch, c.began}
	e.family(gauge, "twotier_build_info", "1, with the version that this node was built from.",
		"version")(1, version.String())
	e.node(st)
	e.cluster(st)
	e.counter(st.Counter)
	e.store(st)
	if rules := c.s.opts.Rules; rules != nil {
		if set := rules.Rules(); set != nil {
			e.gauge("twotier_rules_version",
				"Version of the rules in force; absent until the node knows it.", set.Version())
		}
	}
	c.s.transport(e)
}

// transport collects the counters of the server itself.
func (s *Server) transport(e exposition) {
	requests := e.family(total, "twotier_http_requests_total",
		"HTTP requests answered, by status code.", "code")
	for code := range s.codes {
		if n := s.codes[code].Load(); n > 0 {
			requests(n, strconv.Itoa(code))
		}
	}
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	known, _ := s.sessions.Size()
	e.gauge("twotier_sessions",
		"Sessions of clients whose last request is remembered.", int64(known))
	e.total("twotier_session_repeats_total",
		"Requests that were sent again and answered without being carried out again.",
		s.sessions.repeats.Load())
	e.gauge("twotier_http_connections", "Open HTTP connections.", int64(open))
	e.gauge("twotier_http_memory_bytes",
		"Memory taken for what is read of clients and answered to them, beyond what any "+
			"connection has.", s.allowance.reading.InUse()+s.allowance.answering.InUse())
}

// The kinds of metrics.
const (
	gauge = prometheus.GaugeValue
	total = prometheus.CounterValue
)

// exposition receives metrics while they are collected.
type exposition struct {
	ch    chan<- prometheus.Metric
	began time.Time // when counting began
}

// family begins a metric with labels. It returns a function that adds a value with label values in
// the same order.
func (e exposition) family(
	kind prometheus.ValueType, name, help string, labels ...string,
) func(v int64, values ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(v int64, values ...string) {
		e.ch <- prometheus.MustNewConstMetric(desc, kind, float64(v), values...)
	}
}

func (e exposition) gauge(name, help string, v int64) { e.family(gauge, name, help)(v) }

func (e exposition) total(name, help string, v int64) { e.family(total, name, help)(v) }

// float is like gauge, for a value that is not an integer.
func (e exposition) float(name, help string, v float64) {
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), gauge, v)
}

// durations adds a native histogram. The text format has none, and shows its sum and count.
func (e exposition) durations(name, help string, d cluster.Durations) {
	desc := prometheus.NewDesc(name, help, nil, nil)
	m, err := prometheus.NewConstNativeHistogram(desc, d.Count, d.Sum.Seconds(), d.Buckets, nil, 0,
		durations.Schema, 0, e.began)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e.ch <- m
}

// whether returns the gauge value for a boolean.
func whether(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
