package decisions_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/trace"
)

// lines keeps the lines.
type lines []string

func (l *lines) Add(line ...byte) bool {
	*l = append(*l, strings.TrimSuffix(string(line), "\n"))
	return true
}

func newStream(to *lines, share [twotier.VerdictCount]float64) *decisions.Stream {
	return decisions.New(to, "a-1", share, func() time.Time {
		return time.Date(2026, 5, 4, 3, 2, 1, 12e6, time.FixedZone("", 3600))
	})
}

// TestLines compares lines, which are valid JSON whatever the key is.
func TestLines(t *testing.T) {
	var to lines
	s := newStream(&to, [twotier.VerdictCount]float64{1, 1, 1, 1})
	s.Record(&decisions.Decision{Door: "http", NS: []byte("sms"), Key: []byte("alice"), N: 3,
		Rule: &twotier.Rule{Name: "receiver"}, Version: 7, Verdict: twotier.ShadowRefused,
		Limits: []twotier.LimitResult{
			{Window: 60_000, Count: 15, Max: 14}, {Window: 90_000_000, Count: 15, Max: 50}}})
	s.Record(&decisions.Decision{Door: "http", Key: []byte("ann"), N: 2, Distinct: true,
		Verdict: twotier.Refused,
		Limits:  []twotier.LimitResult{{Window: 3_600_000, Count: 5, Max: 5}},
		Trace:   trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")})
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(t, err)
	s.Record(&decisions.Decision{Door: "http", Key: []byte("m"), N: 1,
		Limits: []twotier.LimitResult{{Period: monthly, Count: 1, Max: 9}}})
	s.Record(&decisions.Decision{Door: "resp", Key: []byte("\"käse\"\\\xff"), N: 1})
	want := lines{`{"time":"2026-05-04T02:02:01.012Z","ns":"sms","rule":"receiver",` +
		`"key":"alice","n":3,"verdict":"shadow_refused","door":"http",` +
		`"limits":[{"window":"1m","count":15,"max":14},{"window":"25h","count":15,"max":50}],` +
		`"node":"a-1","rules_version":7}`,
		`{"time":"2026-05-04T02:02:01.012Z","ns":"default","key":"ann","n":2,"distinct":true,` +
			`"verdict":"refused","door":"http","limits":[{"window":"1h","count":5,"max":5}],` +
			`"node":"a-1","trace_id":"0af7651916cd43dd8448eb211c80319c"}`,
		`{"time":"2026-05-04T02:02:01.012Z","ns":"default","key":"m","n":1,"verdict":"allowed",` +
			`"door":"http","limits":[{"window":"month.14@Europe/Lisbon","count":1,"max":9}],` +
			`"node":"a-1"}`,
		`{"time":"2026-05-04T02:02:01.012Z","ns":"default","key":"\"käse\"\\\ufffd","n":1,` +
			`"verdict":"allowed","door":"resp","limits":[],"node":"a-1"}`}
	for i, line := range to {
		if line != want[i] || !json.Valid([]byte(line)) {
			t.Errorf("got  %s\nwant %s", line, want[i])
		}
	}
	if len(to) != len(want) {
		t.Errorf("%d lines", len(to))
	}
}

// TestShares records many decisions: a share of 1 chooses all, 0 none, and a half about half of
// them.
func TestShares(t *testing.T) {
	const times = 20_000
	for v, share := range [twotier.VerdictCount]float64{twotier.Allowed: 0.5, twotier.Refused: 1} {
		var to lines
		s := newStream(&to, [twotier.VerdictCount]float64{twotier.Allowed: 0.5,
			twotier.Refused: 1})
		for range times {
			s.Record(&decisions.Decision{Verdict: twotier.Verdict(v)})
		}
		// A deviation of 1000 is 14 standard deviations; without chance there is none.
		want, off := int(share*times), 0
		if share == 0.5 {
			off = 1000
		}
		if n := len(to); n < want-off || n > want+off {
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
			s := decisions.New(nowhere{}, "a", [twotier.VerdictCount]float64{share}, time.Now)
			b.ReportAllocs()
			for b.Loop() {
				s.Record(d)
			}
		})
	}
}

type nowhere struct{}

func (nowhere) Add(...byte) bool { return true }
