package envoy_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
)

// TestCalendarLimits asks a minute before midnight in Shanghai, and after it.
func TestCalendarLimits(t *testing.T) {
	b := start(t)
	b.now.Store(time.Date(2026, 7, 14, 15, 59, 0, 0, time.UTC).UnixMilli())
	for _, want := range []string{"OK: OK 1 of 2/DAY", "OK: OK 0 of 2/DAY",
		"OVER_LIMIT: OVER_LIMIT 0 of 2/DAY"} {
		b.want(b.ask(descriptor("quota=a")), want)
	}
	b.now.Add(60_000)
	b.want(b.ask(descriptor("quota=a")), "OK: OK 1 of 2/DAY")
	answer, err := b.ShouldRateLimit(t.Context(), nil, asking("edge", descriptor("quota=a")))
	must.Succeed(t, err)
	// The service takes the end of the day from the machine's clock.
	left := answer.GetStatuses()[0].GetDurationUntilReset().AsDuration()
	if left <= 0 || left > 24*time.Hour {
		t.Errorf("reset in %v", left)
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		if h.GetKey() == "RateLimit-Policy" && !strings.HasSuffix(h.GetValue(), ";q=2;w=86400") ||
			h.GetKey() == "RateLimit" && !strings.Contains(h.GetValue(), ";r=0;t=") {
			t.Errorf("%s: %s", h.GetKey(), h.GetValue())
		}
	}
}

// nearDocument has descriptors with warning levels.
const nearDocument = `
domain: near
descriptors:
  - {key: ip, warn: 60%, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: tokens, warn: 80%, charge: always,
     rate_limit: {name: tokens, unit: hour, requests_per_unit: 10}}
  - {key: path, warn: 50%, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
`

// reports keeps what a limiter reports of its decisions, and their overall verdicts.
type reports struct {
	*verdicts.Counters
	text    string
	overall []string
}

// record keeps a decision, and the limits that have reached their warning level.
func (r *reports) record(d *decisions.Decision) {
	l := &d.Limits[0]
	r.text += fmt.Sprintf("%s/%s %d of version %d: %v, %d of %d\n", d.NS, d.Key, d.N, d.Version,
		d.Verdict, l.Count, l.Max)
	if d.Rule.IsNear(l.Count, l.Max) {
		r.text += fmt.Sprintf("crossing %s/%s by %s: in %d, from %d%%, %v\n", d.NS, d.RuleName(),
			d.Key, l.Window, d.Rule.Warn, d.Rule.State)
	}
}

// Record keeps the overall verdicts that the history of verdicts counts.
func (r *reports) Record(_ context.Context, ops []twotier.Op, _ []twotier.Result) {
	for i := range ops {
		if c := &ops[i].Checks[0]; bytes.HasPrefix(c.Key, []byte(verdicts.All)) {
			r.overall = append(r.overall, fmt.Sprintf("%s %d", c.Key, c.N))
		}
	}
}

// startNear returns a function that sends descriptors of nearDocument, and returns the overall
// answer and the reports about it.
func startNear(t *testing.T) (*reports, func(...*commonv3.RateLimitDescriptor) string) {
	t.Helper()
	b := start(t)
	doc, err := rules.Read("near.yaml", []byte(nearDocument))
	must.Succeed(t, err)
	b.book.Set(doc, 7)
	r := new(reports)
	r.Counters = verdicts.New(decisions.Func(r.record))
	l := envoy.NewLimiter(b, b.book, r.Counters)
	return r, func(list ...*commonv3.RateLimitDescriptor) string {
		t.Helper()
		r.text = ""
		answer, err := l.ShouldRateLimit(t.Context(), nil,
			asking("near", list...))
		must.Succeed(t, err)
		return answer.GetOverallCode().String() + "\n" + r.text
	}
}

// TestNear reports descriptors whose counts have reached the warning level of their limit, as rules
// do: allowed ones have a verdict of their own, and refused ones cross the level as well.
func TestNear(t *testing.T) {
	r, ask := startNear(t)
	for _, tt := range []struct {
		descriptor *commonv3.RateLimitDescriptor
		want       string
	}{
		{hits(descriptor("ip=1"), 2), "OK\nnear/ip=1 2 of version 7: allowed, 2 of 5\n"},
		{descriptor("ip=1"), "OK\nnear/ip=1 1 of version 7: near, 3 of 5\n" +
			"crossing near/ by ip=1: in 60000, from 60%, on\n"},
		{hits(descriptor("ip=1"), 3), "OVER_LIMIT\nnear/ip=1 3 of version 7: refused, 3 of 5\n" +
			"crossing near/ by ip=1: in 60000, from 60%, on\n"},
		{hits(descriptor("ip=1"), 0), "OK\n"}, // it counts nothing, so it has no verdict
		{hits(descriptor("ip=2"), 6), "OVER_LIMIT\nnear/ip=2 6 of version 7: refused, 0 of 5\n"},
		{hits(descriptor("tokens=a"), 8), "OK\nnear/tokens=a 8 of version 7: near, 8 of 10\n" +
			"crossing near/tokens by tokens=a: in 3600000, from 80%, on\n"},
		{hits(descriptor("tokens=a"), 8), "OVER_LIMIT\n" +
			"near/tokens=a 8 of version 7: refused, 16 of 10\n" +
			"crossing near/tokens by tokens=a: in 3600000, from 80%, on\n"},
		{descriptor("path=/"), "OK\nnear/path=/ 1 of version 7: near, 1 of 2\n" +
			"crossing near/ by path=/: in 60000, from 50%, shadow\n"},
		{hits(descriptor("path=/"), 2), "OK\nnear/path=/ 2 of version 7: shadow_refused, 3 of 2\n" +
			"crossing near/ by path=/: in 60000, from 50%, shadow\n"},
	} {
		if got := ask(tt.descriptor); got != tt.want {
			t.Errorf("%v: got %swant %s", tt.descriptor, got, tt.want)
		}
	}
	verdicts.NewHistory(r.Counters, r, func() int64 { return 0 }).Record()
	want := []string{"@all/allowed 4", "@all/refused 3", "@all/shadow_refused 1"}
	if !slices.Equal(r.overall, want) {
		t.Errorf("the overall verdicts are %v, want %v", r.overall, want)
	}
	got := rowsOf(r.Counters)
	if want := "near/ [1 2 1 2]\nnear/tokens [0 1 0 1]\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestNearWithARefusedDescriptor counts nothing, because another descriptor is over its limit. The
// level is compared with the count without the hits.
func TestNearWithARefusedDescriptor(t *testing.T) {
	_, ask := startNear(t)
	ask(hits(descriptor("ip=1"), 2))
	const refused = "near/ip=2 6 of version 7: refused, 0 of 5\n"
	want := "OVER_LIMIT\nnear/ip=1 2 of version 7: allowed, 2 of 5\n" + refused
	if got := ask(hits(descriptor("ip=1"), 2), hits(descriptor("ip=2"), 6)); got != want {
		t.Errorf("got %swant %s", got, want)
	}
	ask(descriptor("ip=1"))
	want = "OVER_LIMIT\nnear/ip=1 2 of version 7: near, 3 of 5\n" +
		"crossing near/ by ip=1: in 60000, from 60%, on\n" + refused
	if got := ask(hits(descriptor("ip=1"), 2), hits(descriptor("ip=2"), 6)); got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

// TestShadow asks for a domain in shadow: no limit of it refuses or charges, nor does the limit of
// a request. The other domain refuses.
func TestShadow(t *testing.T) {
	b := start(t)
	doc, err := rules.Read("test.yaml", []byte(document))
	must.Succeed(t, err)
	b.book.Shadow = twotier.Shadow{"edge": true}
	b.book.Set(doc, 2)
	own := descriptor("any=thing")
	own.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit_MINUTE}
	b.want(b.ask(hits(descriptor("ip=1"), 2)), "OK: OK 1 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=1"), 2)), "OK: OK 0 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=1"), 0)), "OK: OK 0 of 3/MINUTE")
	b.want(b.ask(descriptor("ip=6.6.6.6")), "OK: OK 0 of 0/SECOND")
	b.want(b.ask(descriptor("user=u path=/")), "OK: OK 8 of 9/MINUTE")
	b.want(b.ask(hits(descriptor("user=u"), 7)), "OK: OK 0 of 5/HOUR")
	b.want(b.ask(hits(descriptor("tokens=a"), 1001), own),
		"OK: OK 0 of 1000/MINUTE OK 0 of 0/MINUTE")
	other := func() string {
		return b.send(asking("other", descriptor("ip=1")))
	}
	b.want(other(), "OK: OK 0 of 1/MINUTE")
	b.want(other(), "OVER_LIMIT: OVER_LIMIT 0 of 1/MINUTE")
	got := rowsOf(b.counted)
	b.want(got, "edge/ [2 0 4 0]\nedge/per_user [0 0 1 0]\nother/ [1 1 0 0]\n")
}

// TestQuotaMode asks beyond a limit in quota mode: the request passes, and Envoy receives the state
// of the limit.
func TestQuotaMode(t *testing.T) {
	b := start(t)
	quota := func(descriptors ...*commonv3.RateLimitDescriptor) string {
		t.Helper()
		answer, err := b.ShouldRateLimit(t.Context(), nil, asking("edge", descriptors...))
		must.Succeed(t, err)
		text := fmt.Sprint(answer.GetOverallCode(), " ", answer.GetStatuses()[0].GetCode())
		fields := answer.GetDynamicMetadata().GetFields()
		if fields["quotaModeEnabled"].GetBoolValue() {
			text += fmt.Sprint(" ", fields["quotaModeViolations"].GetListValue().AsSlice())
		}
		return text
	}
	b.want(quota(descriptor("budget=a"), descriptor("ip=1")), "OK OK []")
	b.want(quota(descriptor("budget=a"), descriptor("ip=1")), "OK OVER_LIMIT [0]")
	b.want(quota(descriptor("budget=b"), descriptor("budget=a")), "OK OK [1]")
	b.want(quota(hits(descriptor("budget=a"), 0)), "OK OVER_LIMIT [0]")
	b.want(quota(hits(descriptor("budget=a"), -9)), "OK OK []")
	b.want(quota(descriptor("budget=a")), "OK OK []")
	b.want(quota(descriptor("ip=6.6.6.6"), descriptor("budget=c")), "OVER_LIMIT OVER_LIMIT []")
	b.want(quota(descriptor("ip=2")), "OK OK")
}

// TestVerdictsAreCounted checks that each descriptor with hits and a limit is counted, by the name
// of the limit and by the listener.
func TestVerdictsAreCounted(t *testing.T) {
	b := start(t)
	for range 4 {
		b.ask(descriptor("ip=1.2.3.4"), descriptor("path=/try"), descriptor("path=/free"),
			hits(descriptor("ip=9.9.9.9"), 0))
	}
	b.ask(descriptor("user=a"), hits(descriptor("ip=1.2.3.4"), -1))
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	if _, _, err := b.JSON(t.Context(), nil, []byte(body)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a failed request has no verdict
	if answer, err := b.ShouldRateLimit(ctx, nil, &ratelimitv3.RateLimitRequest{}); err == nil {
		t.Error(answer)
	}
	got := ""
	for _, r := range b.counted.Rows() {
		got += fmt.Sprintf("%v %s/%s %v\n", r.Door, r.Namespace, r.Rule, r.Totals)
	}
	// The hit of ip after its refusal is only compared, not counted.
	b.want(got, "grpc edge/ [4 1 3 0]\n"+
		"envoy-json edge/per_user [1 0 0 0]\ngrpc edge/per_user [1 0 0 0]\n")
}
