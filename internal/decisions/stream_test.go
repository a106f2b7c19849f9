package decisions_test

import (
	"encoding/json"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/testing/must"
)

// lines keeps the lines.
type lines []string

func (l *lines) Add(line []byte) { *l = append(*l, string(line)) }

func newStream(to *lines, share [twotier.VerdictCount]float64) *decisions.Stream {
	return decisions.New(to, "a-1", share, func() time.Time {
		return time.Date(2026, 5, 4, 3, 2, 1, 12e6, time.FixedZone("", 3600))
	})
}

// TestLines compares lines, which are valid JSON whatever the key is.
func TestLines(t *testing.T) {
	var to lines
	s := newStream(&to, [twotier.VerdictCount]float64{})
	s.Record(&twotier.Decision{Door: "http", NS: []byte("sms"), Key: []byte("alice"), N: 3,
		Rule: "receiver", Version: 7, Verdict: twotier.ShadowRefused, Limits: []twotier.Compared{
			{Window: 60_000, Count: 15, Max: 14}, {Window: 90_000_000, Count: 15, Max: 50}}})
	s.Record(&twotier.Decision{Door: "http", Key: []byte("ann"), N: 2, Distinct: true,
		Verdict: twotier.Refused, Limits: []twotier.Compared{{Window: 3_600_000, Count: 5, Max: 5}},
		TraceID: "0af7651916cd43dd8448eb211c80319c"})
	monthly, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	must.Succeed(t, err)
	s.Record(&twotier.Decision{Door: "http", Key: []byte("m"), N: 1,
		Limits: []twotier.Compared{{Period: monthly, Count: 1, Max: 9}}})
	s.Record(&twotier.Decision{Door: "resp", Key: []byte("\"käse\"\\\xff"), N: 1})
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

// TestShares asks many times: a share of 1 chooses all, 0 none, and a half about half of them.
func TestShares(t *testing.T) {
	const times = 20_000
	s := newStream(new(lines), [twotier.VerdictCount]float64{twotier.Allowed: 0.5,
		twotier.Refused: 1})
	var chosen [twotier.VerdictCount]int
	for range times {
		for v := range twotier.Verdict(twotier.VerdictCount) {
			if s.ShouldRecord(v) {
				chosen[v]++
			}
		}
	}
	// A deviation of 1000 is 14 standard deviations.
	if n := chosen[twotier.Allowed]; n < times/2-1000 || n > times/2+1000 ||
		chosen[twotier.Refused] != times || chosen[twotier.ShadowRefused] != 0 {
		t.Errorf("%v of %d each", chosen, times)
	}
}

// BenchmarkRecord records every decision, or almost none.
func BenchmarkRecord(b *testing.B) {
	d := &twotier.Decision{Door: "http", NS: []byte("sms"), Key: []byte("18829340001"), N: 1,
		Rule: "receiver", Version: 7, Limits: []twotier.Compared{{Window: 60_000, Count: 15,
			Max: 14},
			{Window: 86_400_000, Count: 15, Max: 50}}}
	b.Run("recorded", func(b *testing.B) {
		s := decisions.New(nowhere{}, "a", [twotier.VerdictCount]float64{1, 1, 1}, time.Now)
		b.ReportAllocs()
		for b.Loop() {
			if s.ShouldRecord(d.Verdict) {
				s.Record(d)
			}
		}
	})
	b.Run("not chosen", func(b *testing.B) {
		s := decisions.New(nowhere{}, "a", [twotier.VerdictCount]float64{1e-18, 0, 0}, time.Now)
		for b.Loop() {
			if s.ShouldRecord(d.Verdict) {
				s.Record(d)
			}
		}
	})
}

type nowhere struct{}

func (nowhere) Add([]byte) {}
