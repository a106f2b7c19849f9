package verdicts

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/internal/trace"
)

// The endpoints that answer clients' acquires.
const (
	HTTP        = "http"
	ForwardAuth = "forward-auth"
	EnvoyJSON   = "envoy-json"
	GRPC        = "grpc"
	RESP        = "resp"
)

// Decides reports whether the verdicts on an operation are counted: only acquires count, except dry
// runs and imports of earlier events.
func Decides(op *twotier.Op) bool {
	return op.Kind == twotier.Acquire && !op.DryRun && (op.TS == 0 || !isImport(op))
}

// isImport reports whether an acquire marks its events as imported.
func isImport(op *twotier.Op) bool {
	return twotier.IsImported(op.Checks[len(op.Checks)-1].NS)
}

// Arrival describes the arrival of a request.
type Arrival struct {
	// Endpoint is the name of the endpoint in metrics.
	Endpoint string
	// Began is when the request had arrived.
	Began time.Time
	// Trace finds the trace of the request; Span is its recorded span, which receives the overall
	// verdict: refused if any part of the request was. Both may be nil.
	Trace trace.Source
	Span  trace.Span
}

// endpoints is the number of endpoints: the ones above, and one for all others.
const endpoints = 6

// endpointNames lists the names of the endpoints.
var endpointNames = [endpoints]string{HTTP, ForwardAuth, EnvoyJSON, GRPC, RESP, "other"}

// endpointIndex returns the index of an endpoint.
func endpointIndex(endpoint string) int {
	if i := slices.Index(endpointNames[:], endpoint); i >= 0 {
		return i
	}
	return endpoints - 1
}

// Bounds of the number of series: of limits without a rule, whose namespaces clients choose, and of
// rules, which come from the documents that were in force.
const (
	maxPlain = 512
	maxRules = 4096
)

// All stands for all namespaces in the history. It can't be the name of a namespace.
const All = "@all"

// Others stands for the namespaces beyond the bound. It can't be the name of a namespace.
const Others = "*"

// seriesName identifies a series.
type seriesName struct{ ns, rule string }

// series counts the verdicts of one rule, or of the limits without a rule in one namespace, by
// endpoint. It is not spread over cache lines: BenchmarkCount shows the cost when all cores count
// into one.
type series [endpoints][twotier.VerdictCount]atomic.Int64

// Counters count verdicts, and pass decisions on to sinks. Create them with [New].
type Counters struct {
	metrics.Unchecked

	// all is copied when a series is added, which happens a bounded number of times, so that
	// counting takes no lock.
	all     atomic.Pointer[map[seriesName]*series]
	latency [endpoints]latency
	whole   [twotier.VerdictCount]atomic.Int64 // all decisions, each once
	// unrecorded is the number of verdicts that may be missing in the history.
	unrecorded atomic.Int64
	sinks      [twotier.VerdictCount][]decisions.Sink

	mu           sync.Mutex // held while a series is added
	plain, rules int        // number of series of each kind
}

// New returns empty counters that pass each decision to the sinks that receive it, in this order.
func New(sinks ...decisions.Sink) *Counters {
	c := new(Counters)
	c.all.Store(&map[seriesName]*series{})
	for v := range c.sinks {
		for _, sink := range sinks {
			if sink.Receives(twotier.Verdict(v)) {
				c.sinks[v] = append(c.sinks[v], sink)
			}
		}
	}
	return c
}

// count counts n equal verdicts on keys of a namespace, of a rule or, if its name is empty, of
// limits without a rule. An empty namespace is the default one.
func (c *Counters) count(endpoint string, ns []byte, ruleName string, v twotier.Verdict, n int64) {
	var s *series
	if len(ns) == 0 {
		s = (*c.all.Load())[seriesName{twotier.DefaultNamespace, ruleName}]
	} else {
		s = (*c.all.Load())[seriesName{string(ns), ruleName}]
	}
	if s == nil {
		s = c.add(seriesName{cmp.Or(string(ns), twotier.DefaultNamespace), ruleName})
	}
	s[endpointIndex(endpoint)][v].Add(n)
}

// observeDuration counts decisions with the given duration, by overall verdict.
func (c *Counters) observeDuration(endpoint string, d time.Duration,
	n [twotier.VerdictCount]int64) {
	all := int64(0)
	for v, some := range n {
		if some > 0 {
			c.whole[v].Add(some)
			all += some
		}
	}
	c.latency[endpointIndex(endpoint)].observe(d, all)
}

// add returns the series of a name, which it adds unless another goroutine just has, or the series
// of the names beyond the bound.
func (c *Counters) add(of seriesName) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := *c.all.Load()
	if s := all[of]; s != nil {
		return s
	}
	number, most := &c.plain, maxPlain
	if of.rule != "" {
		number, most = &c.rules, maxRules
	}
	if *number == most {
		of = seriesName{Others, ""}
		if s := all[of]; s != nil {
			return s
		}
	} else {
		*number++
	}
	s := new(series)
	all = maps.Clone(all)
	all[of] = s
	c.all.Store(&all)
	return s
}

// Row holds the counts of one series at one endpoint.
type Row struct {
	Namespace string
	// Rule is "" for limits without a rule.
	Rule string
	Door string
	// Totals is the number of decisions by verdict.
	Totals [twotier.VerdictCount]int64
}

// Rows returns the counts so far, sorted, without empty rows.
func (c *Counters) Rows() (rows []Row) {
	for of, s := range *c.all.Load() {
		for d := range endpoints {
			row := Row{Namespace: of.ns, Rule: of.rule, Door: endpointNames[d]}
			for v := range row.Totals {
				row.Totals[v] = s[d][v].Load()
			}
			if row.Totals != [twotier.VerdictCount]int64{} {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Door, b.Door))
	})
	return rows
}

// bounds are the upper bounds of the buckets of a latency, in seconds. They are few and fixed,
// unlike the bounds of a native histogram, because the text format can't show native ones.
var bounds = [...]float64{50e-6, 100e-6, 250e-6, 500e-6, .001, .0025, .005, .01, .025, .05, .1, .25,
	.5, 1, 2.5}

// latency is a histogram of decision times.
type latency struct {
	buckets [len(bounds) + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// observe counts n decisions with the given duration. A negative duration counts as 0.
func (l *latency) observe(took time.Duration, n int64) {
	at, _ := slices.BinarySearch(bounds[:], took.Seconds())
	l.buckets[at].Add(n)
	l.sum.Add(n * int64(max(0, took)))
}

// Latencies returns a histogram of the decisions at all endpoints: the upper bounds of the buckets
// in seconds, and the number of decisions in each; the last bucket has no bound.
func (c *Counters) Latencies() (upTo []float64, counts []int64) {
	counts = make([]int64, len(c.latency[0].buckets))
	for d := range c.latency {
		for i := range counts {
			counts[i] += c.latency[d].buckets[i].Load()
		}
	}
	return slices.Clone(bounds[:]), counts
}

// cumulative returns the number of decisions up to each bound in seconds, their total number, and
// their total time in seconds.
func (l *latency) cumulative() (upTo map[float64]uint64, count uint64, sum float64) {
	upTo = make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		count += uint64(l.buckets[i].Load())
		upTo[bound] = count
	}
	count += uint64(l.buckets[len(bounds)].Load())
	return upTo, count, time.Duration(l.sum.Load()).Seconds()
}

// Collect implements [prometheus.Collector].
func (c *Counters) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	decisions := to.Totals("twotier_decisions_total",
		"Verdicts on acquires that this node was asked for, by namespace, by the rule that judged "+
			"(empty: limits without a name), by verdict and by door.",
		"ns", "rule", "verdict", "door")
	for _, row := range c.Rows() {
		for v, n := range row.Totals {
			decisions(n, row.Namespace, row.Rule, twotier.Verdict(v).String(), row.Door)
		}
	}
	seconds := prometheus.NewDesc("twotier_decision_seconds",
		"How long clients' acquires took, by door: from when the request was received until its "+
			"answer was made. Those of a batch took as long as the batch.", []string{"door"}, nil)
	for d := range c.latency {
		if upTo, count, sum := c.latency[d].cumulative(); count > 0 {
			ch <- prometheus.MustNewConstHistogram(seconds, count, sum, upTo, endpointNames[d])
		}
	}
	to.Total("twotier_decisions_unrecorded_total", "Verdicts that may be missing in their "+
		"history, because no answer said that they were counted.", c.unrecorded.Load())
}
