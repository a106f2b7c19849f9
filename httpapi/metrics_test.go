package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/internal/version"
	"twotier.dev/twotier/syncer"
)

func TestMetrics(t *testing.T) {
	f := newFake()
	f.stats = cluster.Stats{
		Counter: syncer.Stats{Keys: 5, PendingBuckets: 6,
			UnflushedAge: 1500 * time.Millisecond, MaxLag: 10 * time.Second, WaitingForRoom: 3,
			BehindTotal: 4, BatchesOKTotal: 7, BatchesUnknownTotal: 1, DroppedExpiredTotal: 2},
		Ops: []cluster.OpCount{{Op: "add", Source: "memory", Total: 11},
			{Op: "count", Source: "owner", Total: 3}},
		Members: 3, RingVersion: 9, Store: cluster.StoreHealth{Up: true, RoundTrips: 44,
			RTTMicros: 250}, ClockOffsetMS: -1500,
	}
	f.stats.Mode, f.stats.TablesTotal, f.stats.ServedTotal, f.stats.Owned,
		f.stats.Held = cluster.TwoTier, 12, 13, 14, 15
	f.stats.States = []cluster.StateCount{{State: cluster.Alive, Members: 2},
		{State: cluster.Suspect, Members: 1}}
	f.stats.Phases = cluster.Phases{Own: 16, Incoming: 17, Outgoing: 18, Moving: 19}
	f.stats.Moves = cluster.Moves{Taken: 20, Given: 21, FromStore: 22, Abandoned: 23, TakenBack: 24}
	f.stats.Peers = cluster.PeerStats{MessagesTotal: 25, ResentTotal: 26, FailedTotal: 27,
		TasksTotal: 28}
	f.stats.Links = []cluster.Link{{ID: "b", Up: true}, {ID: "c"}}
	s := newServer(t, f)
	call(s, "POST /v1/add", `{"key":"k"}`)
	call(s, "POST /v1/add", `{`)
	got := string(call(s, "GET /metrics", "").Response.Body())
	for _, line := range []string{
		"twotier_pending_buckets 6", "twotier_unflushed_age_seconds 1.5",
		"twotier_max_lag_seconds 10", "twotier_lag_waiting 3", "twotier_lag_refused_total 4",
		`twotier_ops_total{op="add",source="memory"} 11`,
		`twotier_ops_total{op="count",source="owner"} 3`,
		`twotier_flush_batches_total{result="ok"} 7`,
		`twotier_flush_batches_total{result="unknown"} 1`, "twotier_redis_roundtrips_total 44",
		"twotier_keys 5", `twotier_dropped_total{reason="expired"} 2`, "twotier_members 3",
		"twotier_ring_version 9", "twotier_redis_up 1",
		"twotier_redis_rtt_seconds 0.00025", "twotier_clock_offset_seconds -1.5",
		`twotier_http_requests_total{code="200"} 1`,
		`twotier_http_requests_total{code="400"} 1`, "twotier_http_connections 0",
		`twotier_mode{mode="two-tier"} 1`, `twotier_mode{mode="redis"} 0`,
		"twotier_ring_changes_total 12",
		`twotier_member_states{state="alive"} 2`, `twotier_member_states{state="suspect"} 1`,
		"twotier_partitions_owned 14", "twotier_partitions_held 15",
		`twotier_partition_states{state="own"} 16`, `twotier_partition_states{state="incoming"} 17`,
		`twotier_partition_states{state="outgoing"} 18`,
		`twotier_partition_states{state="moving"} 19`,
		`twotier_handovers_total{direction="in",via="peer"} 20`,
		`twotier_handovers_total{direction="out",via="peer"} 21`,
		`twotier_handovers_total{direction="in",via="store"} 22`,
		`twotier_handovers_total{direction="out",via="store"} 23`,
		"twotier_handovers_undone_total 24", "twotier_peer_messages_total 25",
		"twotier_peer_resent_total 26",
		"twotier_peer_failures_total 27", `twotier_forwarded_total{direction="out"} 28`,
		`twotier_forwarded_total{direction="in"} 13`,
		`twotier_peer_up{peer="b"} 1`, `twotier_peer_up{peer="c"} 0`,
	} {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	wellFormed(t, got)
}

// TestMetricsOfManyPeers bounds the series that have a member in a label.
func TestMetricsOfManyPeers(t *testing.T) {
	f := newFake()
	for i := range 300 {
		f.stats.Links = append(f.stats.Links, cluster.Link{ID: strconv.Itoa(i)})
	}
	got := string(call(newServer(t, f), "GET /metrics", "").Response.Body())
	if n := strings.Count(got, "\ntwotier_peer_up{"); n != 64 {
		t.Errorf("%d series, want 64", n)
	}
	wellFormed(t, got)
}

// wellFormed parses the page with Prometheus's library, and lints the names of our metrics.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Error(err)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "twotier_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestMetricsOfTheProcess looks for the library's metrics of the process, the runtime and the
// build.
func TestMetricsOfTheProcess(t *testing.T) {
	got := string(call(newServer(t, newFake()), "GET /metrics", "").Response.Body())
	for _, name := range []string{
		"go_goroutines", "go_memstats_heap_alloc_bytes", "go_gc_duration_seconds_count",
		"process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total",
		`go_build_info{checksum="`, `twotier_build_info{version="` + version.String() + `"} 1`,
	} {
		if !strings.Contains(got, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestDurationsAreANativeHistogram reads one back in a format that supports them.
func TestDurationsAreANativeHistogram(t *testing.T) {
	f := newFake()
	var h durations.Histogram
	for _, d := range []time.Duration{time.Millisecond, time.Millisecond, time.Second} {
		h.Observe(d)
	}
	f.stats.Store.Durations = cluster.Durations(h.Snapshot())
	ctx := call(newServer(t, f), "GET /metrics", "", "Accept: application/vnd.google.protobuf;"+
		"proto=io.prometheus.client.MetricFamily;encoding=delimited")
	kind := http.Header{"Content-Type": {string(ctx.Response.Header.ContentType())}}
	decoder := expfmt.NewDecoder(bytes.NewReader(ctx.Response.Body()), expfmt.ResponseFormat(kind))
	for {
		family := new(dto.MetricFamily)
		if err := decoder.Decode(family); err != nil {
			t.Fatalf("there is no twotier_redis_exchange_seconds: %v", err)
		}
		if family.GetName() != "twotier_redis_exchange_seconds" {
			continue
		}
		got := family.GetMetric()[0].GetHistogram()
		// Two buckets that are not adjacent, with counts 2 and 1 (a delta of -1). The second one
		// ends at 2^0 seconds.
		if got.GetSampleCount() != 3 || got.GetSampleSum() != 1.002 ||
			got.GetSchema() != durations.Schema ||
			len(got.GetPositiveSpan()) != 2 ||
			!slices.Equal(got.GetPositiveDelta(), []int64{2, -1}) {
			t.Errorf("%v", got)
		}
		return
	}
}

// TestMetricsInOtherFormats requests the formats that Prometheus prefers when it accepts native
// histograms.
func TestMetricsInOtherFormats(t *testing.T) {
	const text, protobuf = "text/plain; version=0.0.4", "application/vnd.google.protobuf"
	for accept, want := range map[string]string{
		"": text, "text/html": text,
		protobuf + ";proto=io.prometheus.client.MetricFamily;encoding=delimited": protobuf,
	} {
		ctx := call(newServer(t, newFake()), "GET /metrics", "", "Accept: "+accept)
		if kind := string(ctx.Response.Header.ContentType()); !strings.HasPrefix(kind, want) {
			t.Errorf("%q: %s, want %s", accept, kind, want)
		}
	}
}

// judging returns a server that counts its verdicts, and a function that reads them: a line for
// each row.
func judging(t testing.TB, f *fake) (*httpapi.Server, func() string) {
	t.Helper()
	c := verdicts.New()
	s := serverOf(t, httpapi.Options{Service: f, Rules: testRules{},
		Verdicts: c, Collectors: []prometheus.Collector{c}})
	return s, func() string {
		var lines []string
		for _, r := range c.Rows() {
			lines = append(lines,
				fmt.Sprintf("%v %s/%s %v", r.Door, r.Namespace, r.Rule, r.Totals))
		}
		return strings.Join(lines, "\n")
	}
}

// TestVerdictsAreCounted sends requests and compares their additions to the counters: allowed,
// refused and refused in shadow.
func TestVerdictsAreCounted(t *testing.T) {
	const limit = `"limits":[{"window":"1m","max":1}]`
	near := func(n int) string {
		return fmt.Sprintf(`{"key":"k","n":%d,"rules":["warned","warned-shadow"]}`, n)
	}
	twice := func(body string) []string { return []string{body, body} }
	for _, tt := range []struct {
		name, path string
		bodies     []string
		want       string
	}{
		{"limits", "POST /v1/acquire", twice(`{"key":"k",` + limit + `}`),
			"http default/ [1 1 0 0]"},
		{"namespace", "POST /v1/acquire", twice(`{"ns":"sms","key":"k",` + limit + `}`),
			"http sms/ [1 1 0 0]"},
		{"dry run", "POST /v1/acquire", twice(`{"key":"k","dry_run":true,` + limit + `}`), ""},
		{"add", "POST /v1/add", twice(`{"key":"k",` + limit + `}`), ""},
		{"refused field", "POST /v1/acquire", twice(`{"key":"k"}`), ""},
		{"rule", "POST /v1/acquire", twice(`{"key":"k","n":2,"rules":["login"]}`),
			"http default/login [1 1 0 0]"},
		{"shadow", "POST /v1/acquire", twice(`{"key":"k","rules":["tight"]}`),
			"http default/tight [1 0 1 0]"},
		{"counted refusals in shadow", "POST /v1/acquire", []string{
			`{"key":"k","charge":true,"limits":[{"window":"1m","max":0}],"rules":["tight"]}`,
			`{"key":"l","count_denied":true,"limits":[{"window":"1m","max":0}],"rules":["tight"]}`},
			"http default/ [0 2 0 0]\nhttp default/tight [2 0 0 0]"},
		{"no events in shadow", "POST /v1/acquire", []string{`{"key":"k","rules":["tight"]}`,
			`{"checks":[{"key":"l","rules":["login"]},{"key":"k","n":0,"rules":["tight"]}]}`},
			"http default/login [1 0 0 0]\nhttp default/tight [1 0 1 0]"},
		{"near", "POST /v1/acquire", []string{near(2), near(1), near(1),
			`{"key":"k","n":9,"dry_run":true,"rules":["warned"]}`},
			"http warned/warned [1 1 0 1]\nhttp warned/warned-shadow [0 0 2 1]"},
		{"off", "POST /v1/acquire", twice(`{"key":"k","rules":["off"]}`), ""},
		{"rules and limits", "POST /v1/acquire",
			twice(`{"key":"k","rules":["off","tight","login"],` + limit + `}`),
			"http default/ [1 1 0 0]\nhttp default/login [2 0 0 0]\nhttp default/tight [1 0 1 0]"},
		{"limits and rules", "POST /v1/acquire", twice(`{"key":"k",` + limit + `,"rules":["login"]}`),
			"http default/ [1 1 0 0]\nhttp default/login [2 0 0 0]"},
		{"checks", "POST /v1/acquire", twice(`{"checks":[{"key":"a",` + limit +
			`},{"key":"b","rules":["sms"]}]}`), "http default/ [1 1 0 0]\nhttp sms/sms [2 0 0 0]"},
		{"batch", "POST /v1/batch", twice(`{"ops":[{"op":"acquire","key":"k",` + limit +
			`},{"op":"add","key":"k"},{"op":"acquire"},{"op":"acquire","key":"k",` + limit + `}]}`),
			"http default/ [1 3 0 0]"},
		{"forward-auth", "GET /v1/forward-auth?rule=sms&rule=sms-day&key=ip",
			make([]string, 3),
			"forward-auth sms/sms [2 1 0 0]\nforward-auth sms/sms-day [3 0 0 0]"},
	} {
		s, counted := judging(t, newFake())
		for _, body := range tt.bodies {
			call(s, tt.path, body)
		}
		if got := counted(); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestFailuresHaveNoVerdict because nobody decided.
func TestFailuresHaveNoVerdict(t *testing.T) {
	f := newFake()
	f.err = errors.New("a test asked for it")
	s, counted := judging(t, f)
	const op = `"key":"k","limits":[{"window":"1m","max":1}]`
	call(s, "POST /v1/acquire", "{"+op+"}")
	call(s, "POST /v1/batch", `{"ops":[{"op":"acquire",`+op+`}]}`)
	if got := counted(); got != "" {
		t.Error(got)
	}
}

// TestVerdictsAreShown in the metrics, with the duration of decisions.
func TestVerdictsAreShown(t *testing.T) {
	s, _ := judging(t, newFake())
	call(s, "POST /v1/acquire", `{"key":"k","rules":["login"]}`)
	page := string(call(s, "GET /metrics", "").Response.Body())
	for _, want := range []string{
		`twotier_decisions_total{door="http",ns="default",rule="login",verdict="allowed"} 1`,
		`twotier_decision_seconds_count{door="http"} 1`, "\ntwotier_rules_version 7",
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// TestVerdictsOfOthersAreNotShown to a token for some namespaces.
func TestVerdictsOfOthersAreNotShown(t *testing.T) {
	store, texts := tokens(t, "shop count,read login", "all count,read *", "main read default")
	c := verdicts.New()
	s := serverOf(t, httpapi.Options{Tokens: store, Verdicts: c,
		Collectors: []prometheus.Collector{c}})
	for _, ns := range []string{"login", "bank"} {
		as(s, texts["all"], "POST /v1/acquire",
			`{"ns":"`+ns+`","key":"k","limits":[{"window":"1m","max":1}]}`)
	}
	for name, want := range map[string][]bool{"shop": {true, false}, "all": {true, true},
		"main": {false, false}} {
		page := string(as(s, texts[name], "GET /metrics", "").Response.Body())
		for i, ns := range []string{`ns="login"`, `ns="bank"`} {
			if strings.Contains(page, ns) != want[i] {
				t.Errorf("%s sees %s: %v, want %v", name, ns, !want[i], want[i])
			}
		}
		if !strings.Contains(page, `twotier_decision_seconds_count{door="http"} 2`) {
			t.Errorf("%s does not see the rest:\n%s", name, page)
		}
	}
}

// BenchmarkVerdicts sends acquires over a connection, with and without counting their verdicts.
func BenchmarkVerdicts(b *testing.B) {
	for _, tt := range []struct {
		name     string
		counters *verdicts.Counters
	}{{"without", nil}, {"with", verdicts.New()}} {
		b.Run(tt.name, func(b *testing.B) {
			s := serverOf(b, httpapi.Options{Service: newFake(), Listen: "127.0.0.1:0",
				Verdicts: tt.counters})
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			client := &fasthttp.HostClient{Addr: s.Addr().String()}
			req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			req.Header.SetMethod("POST")
			req.Header.SetContentType("application/json")
			req.SetRequestURI("http://" + s.Addr().String() + "/v1/acquire")
			req.SetBodyString(hot[2].body)
			for b.Loop() {
				if err := client.DoTimeout(req, res, time.Minute); err != nil {
					b.Fatal(err)
				}
			}
			client.CloseIdleConnections()
			if err := s.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}
