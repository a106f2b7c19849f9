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
	"twotier.dev/twotier/httpapi/internal/exposition"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/version"
)

// newRegistry returns the registry of /metrics: the counters of the server and its node, and the
// collectors of the Go runtime, the process and its build. Our own metrics are read on a scrape
// from existing counters, so requests pay nothing for them.
func (s *Server) newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister( // their names don't overlap
		counters{s: s, began: time.Now()},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	r.MustRegister(s.opts.Collectors...)
	return r
}

// showMetrics answers in the client's preferred Prometheus format, text by default.
func (s *Server) showMetrics(ctx *fasthttp.RequestCtx) *wire.Problem {
	accept := string(ctx.Request.Header.Peek(fasthttp.HeaderAccept))
	format := expfmt.NegotiateAccept(http.Header{fasthttp.HeaderAccept: {accept}},
		expfmt.FmtProtoDelim, expfmt.FmtProtoText, expfmt.FmtProtoCompact, expfmt.FmtText)
	page, err := s.renderMetrics(format, grantOf(ctx))
	if err != nil { // a bug of ours, such as a duplicate metric
		s.log.Error("can't render metrics", "error", err)
		const detail = "the metrics can't be made; this server's log says why"
		return &wire.Problem{Kind: wire.Internal, Detail: detail}
	}
	if p := memoryOf(ctx).ReservePage(int64(len(page))); p != nil {
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
		if f.Metric = filterGranted(f.Metric, g); len(f.Metric) == 0 {
			continue
		}
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	return page.Bytes(), nil
}

// filterGranted leaves out the metrics of namespaces that a grant does not cover.
func filterGranted(metrics []*dto.Metric, g *twotier.Grant) []*dto.Metric {
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
	metrics.Unchecked

	s     *Server
	began time.Time
}

// Collect implements [prometheus.Collector].
func (c counters) Collect(ch chan<- prometheus.Metric) {
	st := c.s.service.Stats()
	e := exposition.New(ch, c.began)
	e.Gauges("twotier_build_info",
		"1, with the version that this node was built from.", "version")(1, version.String())
	e.AddNode(st)
	if rules := c.s.opts.Rules; rules != nil {
		if set := rules.Rules(); set != nil {
			e.Gauge("twotier_rules_version",
				"Version of the rules in force; absent until the node knows it.", set.Version())
		}
	}
	c.s.collectHTTP(e)
}

// collectHTTP collects the counters of the server itself.
func (s *Server) collectHTTP(e exposition.Exposition) {
	requests := e.Totals("twotier_http_requests_total",
		"HTTP requests answered, by status code.", "code")
	for code := range s.codes {
		if n := s.codes[code].Load(); n > 0 {
			requests(n, strconv.Itoa(code))
		}
	}
	open := 0
	for _, d := range s.endpoints {
		open += d.Conns.InUse()
	}
	known, _ := s.sessions.Size()
	e.Gauge("twotier_sessions",
		"Sessions of clients whose last request is remembered.", int64(known))
	e.Total("twotier_session_repeats_total",
		"Requests that were sent again and answered without being carried out again.",
		s.sessions.repeats.Load())
	e.Gauge("twotier_http_connections", "Open HTTP connections.", int64(open))
	e.Gauge("twotier_http_memory_bytes",
		"Memory taken for what is read of clients and answered to them, beyond what any "+
			"connection has.", s.budget.Conns.Held(memory.Awake))
}
