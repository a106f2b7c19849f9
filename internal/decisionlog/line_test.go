package decisionlog_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisionlog"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/trace"
)

// record returns the lines of decisions, with these sampling rates.
func record(t *testing.T, shares [twotier.VerdictCount]float64,
	all ...decisions.Decision) []string {
	t.Helper()
	var to strings.Builder
	l := open(t, decisionlog.Options{Writer: &to, Node: "a-1", Shares: shares})
	for i := range all {
		if v := all[i].Verdict; l.Receives(v) != (shares[v] > 0) {
			t.Errorf("receives %v: %v", v, l.Receives(v))
		}
		l.Record(&all[i])
	}
	end(t, l)
	return slices.Collect(strings.Lines(to.String()))
}

// TestLines compares lines, which are valid JSON whatever the key is.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
		must.Succeed(t, err)
		time.Sleep(12 * time.Millisecond)
		got := record(t, [twotier.VerdictCount]float64{1, 1, 1, 1},
			decisions.Decision{Door: "http", NS: []byte("sms"), Key: []byte("alice"), N: 3,
				Rule: &twotier.Rule{Name: "receiver"}, Version: 7, Verdict: twotier.ShadowRefused,
				Limits: []twotier.LimitResult{{Window: 60_000, Count: 15, Max: 14},
					{Window: 90_000_000, Count: 15, Max: 50}}},
			decisions.Decision{Door: "http", Key: []byte("ann"), N: 2, Distinct: true,
				Verdict: twotier.Refused,
				Limits:  []twotier.LimitResult{{Window: 3_600_000, Count: 5, Max: 5}}, Trace: trace.
						Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")},
			decisions.Decision{Door: "http", Key: []byte("m"), N: 1,
				Limits: []twotier.LimitResult{{Period: monthly, Count: 1, Max: 9}}},
			decisions.Decision{Door: "resp", Key: []byte("\"käse\"\\\xff"), N: 1})
		const when = `{"time":"2000-01-01T00:00:00.012Z","ns":`
		want := []string{`"sms","rule":"receiver","key":"alice","n":3,` +
			`"verdict":"shadow_refused","door":"http",` +
			`"limits":[{"window":"1m","count":15,"max":14},{"window":"25h","count":15,"max":50}],` +
			`"node":"a-1","rules_version":7}`,
			`"default","key":"ann","n":2,"distinct":true,"verdict":"refused","door":"http",` +
				`"limits":[{"window":"1h","count":5,"max":5}],` +
				`"node":"a-1","trace_id":"0af7651916cd43dd8448eb211c80319c"}`,
			`"default","key":"m","n":1,"verdict":"allowed","door":"http",` +
				`"limits":[{"window":"month.14@Europe/Lisbon","count":1,"max":9}],"node":"a-1"}`,
			`"default","key":"\"käse\"\\\ufffd","n":1,"verdict":"allowed","door":"resp",` +
				`"limits":[],"node":"a-1"}`}
		for i, line := range got {
			if i < len(want) && line != when+want[i]+"\n" || !json.Valid([]byte(line)) {
				t.Errorf("got  %s\nwant %s", line, want[i])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d lines", len(got))
		}
	})
}

// TestShares records many decisions: a share of 1 chooses all, 0 none, and a half about half of
// them.
func TestShares(t *testing.T) {
	const times = 20_000
	shares := [twotier.VerdictCount]float64{twotier.Allowed: 0.5, twotier.Refused: 1}
	for v, share := range shares {
		all := make([]decisions.Decision, times)
		for i := range all {
			all[i].Verdict = twotier.Verdict(v)
		}
		// A deviation of 1000 is 14 standard deviations; without chance there is none.
		want, off := int(share*times), 0
		if share == 0.5 {
			off = 1000
		}
		if n := len(record(t, shares, all...)); n < want-off || n > want+off {
			t.Errorf("%d of %d with share %v", n, times, share)
		}
	}
}

// BenchmarkRecord records every decision, or almost none.
func BenchmarkRecord(b *testing.B) {
	d := &decisions.Decision{Door: "http", NS: []byte("sms"), Key: []byte("18829340001"), N: 1,
		Rule: &twotier.Rule{Name: "receiver"}, Version: 7, Limits: []twotier.LimitResult{
			{Window: 60_000, Count: 15, Max: 14}, {Window: 86_400_000, Count: 15, Max: 50}}}
	for name, share := range map[string]float64{"recorded": 1, "not chosen": 1e-18} {
		b.Run(name, func(b *testing.B) {
			l, err := decisionlog.New(decisionlog.Options{Writer: io.Discard, Node: "a",
				Shares: [twotier.VerdictCount]float64{share}})
			must.Succeed(b, err)
			b.ReportAllocs()
			for b.Loop() {
				l.Record(d)
			}
		})
	}
}
