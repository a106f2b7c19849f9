package verdicts_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
)

// begin returns a run for a request at an endpoint.
func begin(c *verdicts.Counters, endpoint string) *verdicts.Run {
	run := new(verdicts.Run)
	run.Begin(c, &verdicts.Arrival{Endpoint: endpoint})
	return run
}

// note counts n equal verdicts at an endpoint.
func note(c *verdicts.Counters, endpoint, ns, name string, v twotier.Verdict, n int) {
	run := begin(c, endpoint)
	for range n {
		run.BeginDecision()
		run.CountVerdict([]byte(ns), name, v)
	}
	run.End(time.Millisecond)
}

// text returns the counts, a line for each row.
func text(c *verdicts.Counters) string {
	var lines []string
	for _, r := range c.Rows() {
		lines = append(lines, fmt.Sprintf("%s/%s %v %v", r.Namespace, r.Rule, r.Door, r.Totals))
	}
	return strings.Join(lines, "\n")
}

// TestCountsByRuleAndDoor counts runs of equal verdicts and of different ones.
func TestCountsByRuleAndDoor(t *testing.T) {
	c := verdicts.New()
	run := begin(c, verdicts.RESP)
	for i := range 6 {
		run.CountVerdict(nil, "", twotier.VerdictOf(i >= 4, false))
		run.CountVerdict([]byte("default"), "", twotier.Allowed) // the same namespace
		run.CountVerdict([]byte("sms"), "receiver", twotier.VerdictOf(i < 3, true))
	}
	run.CountVerdict([]byte("a"), "", twotier.Allowed)
	run.CountVerdict([]byte("b"), "", twotier.Allowed)
	run.End(0)
	note(c, verdicts.HTTP, "sms", "receiver", twotier.Refused, 7)
	note(c, verdicts.HTTP, "sms", "", twotier.Allowed, 1)
	const want = "a/ resp [1 0 0 0]\nb/ resp [1 0 0 0]\ndefault/ resp [10 2 0 0]\n" +
		"sms/ http [1 0 0 0]\nsms/receiver http [0 7 0 0]\nsms/receiver resp [3 0 3 0]"
	if got := text(c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSeriesAreBounded counts in more namespaces than there can be series, concurrently: no count
// is lost, and rules, which clients can't make up, still have separate series.
func TestSeriesAreBounded(t *testing.T) {
	const namespaces, goroutines, bound = 1500, 4, 512
	c := verdicts.New()
	var g sync.WaitGroup
	for range goroutines {
		g.Go(func() {
			for i := range namespaces {
				note(c, verdicts.HTTP, fmt.Sprint("n", i), "", twotier.Refused, 1)
			}
		})
	}
	g.Wait()
	note(c, verdicts.HTTP, "sms", "late", twotier.Allowed, 1)
	rows := c.Rows()
	var all int64
	for _, r := range rows {
		all += r.Totals[twotier.Refused]
	}
	others := rows[0]
	if len(rows) != bound+2 || others.Namespace != verdicts.Others || all != namespaces*goroutines {
		t.Errorf("%d rows with %d in all, the first is %+v", len(rows), all, others)
	}
	if !slices.ContainsFunc(rows, func(r verdicts.Row) bool {
		return r.Rule == "late" && r.Totals[twotier.Allowed] == 1
	}) {
		t.Error("the rule has no series")
	}
}

// exposition returns the metrics as Prometheus reads them.
func exposition(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	must.Succeed(t, err)
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestMetrics compares the metrics with the expected text.
func TestMetrics(t *testing.T) {
	c := verdicts.New()
	note(c, verdicts.ForwardAuth, "", "login", twotier.ShadowRefused, 2)
	run := begin(c, verdicts.ForwardAuth)
	run.BeginDecision()
	run.End(time.Hour)
	run.End(time.Hour) // again, without decisions
	got := exposition(t, c)
	for _, want := range []string{
		`twotier_decisions_total{door="forward-auth",ns="default",rule="login",` +
			`verdict="shadow_refused"} 2`,
		`twotier_decisions_total{door="forward-auth",ns="default",rule="login",` +
			`verdict="refused"} 0`,
		`twotier_decision_seconds_bucket{door="forward-auth",le="0.0005"} 0`,
		`twotier_decision_seconds_bucket{door="forward-auth",le="0.001"} 2`,
		`twotier_decision_seconds_bucket{door="forward-auth",le="2.5"} 2`,
		`twotier_decision_seconds_bucket{door="forward-auth",le="+Inf"} 3`,
		`twotier_decision_seconds_sum{door="forward-auth"} 3600.002`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestDecides(t *testing.T) {
	for _, op := range []twotier.Op{{Kind: twotier.Acquire}, {Kind: twotier.Acquire, DryRun: true},
		{Kind: twotier.Add}, {Kind: twotier.Count}} {
		want := op.Kind == twotier.Acquire && !op.DryRun
		if verdicts.Decides(&op) != want {
			t.Errorf("%+v: not %v", op, want)
		}
	}
}

// BenchmarkCount counts one acquire: on one goroutine, and on all cores into one series.
func BenchmarkCount(b *testing.B) {
	ns := []byte("sms")
	one := func(c *verdicts.Counters, run *verdicts.Run) {
		run.Begin(c, &verdicts.Arrival{Endpoint: verdicts.HTTP})
		run.BeginDecision()
		run.CountVerdict(ns, "receiver", twotier.Allowed)
		run.End(80 * time.Microsecond)
	}
	b.Run("alone", func(b *testing.B) {
		c := verdicts.New()
		b.ReportAllocs()
		for run := new(verdicts.Run); b.Loop(); {
			one(c, run)
		}
	})
	b.Run("together", func(b *testing.B) {
		c := verdicts.New()
		b.RunParallel(func(pb *testing.PB) {
			for run := new(verdicts.Run); pb.Next(); {
				one(c, run)
			}
		})
	})
}

// TestAcquiresCountOnceInAll counts acquires judged by several rules: a refusal takes precedence.
func TestAcquiresCountOnceInAll(t *testing.T) {
	c, k := verdicts.New(), &keeper{counts: map[string]int64{}}
	run := begin(c, verdicts.GRPC)
	for _, judged := range [][]twotier.Verdict{
		{twotier.Allowed, twotier.Allowed}, {twotier.Refused, twotier.ShadowRefused,
			twotier.Allowed},
		{twotier.Allowed, twotier.ShadowRefused}, {twotier.ShadowRefused, twotier.Refused},
		{twotier.Refused}, {},
	} {
		run.BeginDecision()
		for i, v := range judged {
			run.CountVerdict(nil, fmt.Sprint("r", i), v)
		}
	}
	run.End(time.Millisecond)
	verdicts.NewHistory(c, k, wall).Record()
	const want = "@verdicts @all/allowed 2\n@verdicts @all/refused 3\n" +
		"@verdicts @all/shadow_refused 1\n"
	if got := k.text(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	bounds, counts := c.Latencies()
	if len(counts) != len(bounds)+1 || bounds[4] != 0.001 || counts[4] != 6 {
		t.Errorf("latencies %v %v", bounds, counts)
	}
}

// TestShadowsAreNoted judges keys by rules in shadow: only the first decision of several that would
// have refused a key is not repeated, and a key refused by a rule that is on has none.
func TestShadowsAreNoted(t *testing.T) {
	var noted []string
	c := verdicts.New(decisions.Func(func(d *decisions.Decision) {
		if d.Verdict == twotier.ShadowRefused {
			noted = append(noted, fmt.Sprintf("%s:%s %v", d.NS, d.Key, d.Repeated))
		}
	}))
	shadow := func(most int64) *verdicts.Ruled {
		return limitOf(&twotier.Rule{State: twotier.RuleShadow}, 0, most)
	}
	run := begin(c, verdicts.HTTP)
	for _, tt := range []struct {
		key    string
		limits []*verdicts.Ruled
	}{
		{"both", []*verdicts.Ruled{shadow(4), shadow(3)}},
		{"neither", []*verdicts.Ruled{shadow(5), shadow(6)}},
		{"on", []*verdicts.Ruled{limitOf(&twotier.Rule{}, 0, 4), shadow(5)}},
		{"second", []*verdicts.Ruled{shadow(5), shadow(4)}},
	} {
		limits := []twotier.LimitResult{{Count: 5, Max: 9}, {Count: 5, Max: 9}}
		op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: []byte("sms"),
			Key: []byte(tt.key), N: 1}}}
		run.BeginCheck()
		run.CountCheck(&op, 0,
			&twotier.Result{Allowed: true, Checks: []twotier.CheckResult{{Limits: limits}}},
			func(k int) *verdicts.Ruled { return tt.limits[k] })
	}
	run.End(0)
	want := []string{"sms:both false", "sms:both true", "sms:second false"}
	if !slices.Equal(noted, want) {
		t.Errorf("noted are %v, want %v", noted, want)
	}
}
