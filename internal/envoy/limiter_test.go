package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// bed is a limiter over a counter whose clock the test moves.
type bed struct {
	*envoy.Limiter
	t       testing.TB
	counter *syncer.Counter
	book    *rules.Book
	now     atomic.Int64
	counted *verdicts.Counters
	// fail holds the error that every operation of a kind returns.
	fail map[twotier.Kind]error
	// gate holds up all operations until it is closed. Nil holds up none.
	gate   chan struct{}
	traces []string // of the operations
}

const document = `
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: ip, value: 6.6.6.6, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: path, value: /free, rate_limit: {unlimited: true}}
  - {key: path, value: /try, rate_limit: {unit: hour, requests_per_unit: 1}, shadow_mode: true}
  - key: user
    rate_limit: {name: per_user, unit: hour, unit_multiplier: 2, requests_per_unit: 5}
    descriptors:
      - {key: path, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: per_user}]}}
  - {key: known}
  - {key: tokens, charge: always, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: bytes, charge: always, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
  - {key: budget, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, rate_limit: {unit: day, requests_per_unit: 2, calendar: Asia/Shanghai}}
---
domain: other
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 1}}
`

func start(t testing.TB) *bed {
	t.Helper()
	b := &bed{t: t, fail: map[twotier.Kind]error{}}
	b.now.Store(1_763_000_100_000)
	counter, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}),
		Now: b.now.Load})
	must.Succeed(t, err)
	must.Succeed(t, counter.Open(t.Context()))
	t.Cleanup(func() {
		must.Succeed(t, counter.Close(context.Background()))
	})
	doc, err := rules.Read("test.yaml", []byte(document))
	must.Succeed(t, err)
	b.book = new(rules.Book)
	b.book.Set(doc, 1)
	b.counted = verdicts.New()
	b.counter, b.Limiter = counter, envoy.NewLimiter(b, b.book, b.counted)
	return b
}

// Do implements [envoy.Service].
func (b *bed) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if of := trace.From(ctx); of != nil || len(b.traces) > 0 {
		b.traces = append(b.traces, of.TraceID())
	}
	if b.gate != nil {
		<-b.gate
	}
	if err := b.fail[op.Kind]; err != nil {
		return err
	}
	return b.counter.Do(ctx, op, res)
}

// DoAll implements [envoy.Service].
func (b *bed) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = b.Do(ctx, &ops[i], &res[i])
	}
}

// descriptor parses "ip=1.2.3.4 path=/a".
func descriptor(text string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// hits sets a descriptor's own number of hits, which may be negative.
func hits(d *commonv3.RateLimitDescriptor, n int) *commonv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(uint64(max(n, -n)))
	d.IsNegativeHits = n < 0
	return d
}

// ask sends descriptors and returns "OK: " or "OVER_LIMIT: " and the code, limit and remaining
// number of each.
func (b *bed) ask(descriptors ...*commonv3.RateLimitDescriptor) string {
	b.t.Helper()
	return b.send(asking("edge", descriptors...))
}

// asking returns a request for a domain.
func asking(domain string, list ...*commonv3.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: list}
}

// rowsOf returns the counted verdicts, a line for each series.
func rowsOf(counters *verdicts.Counters) (text string) {
	for _, r := range counters.Rows() {
		text += fmt.Sprintf("%s/%s %v\n", r.Namespace, r.Rule, r.Totals)
	}
	return text
}

func (b *bed) send(r *ratelimitv3.RateLimitRequest) string {
	b.t.Helper()
	answer, err := b.ShouldRateLimit(b.t.Context(), nil, r)
	if err != nil {
		return err.Error()
	}
	text := answer.GetOverallCode().String() + ":"
	for _, s := range answer.GetStatuses() {
		text += " " + s.GetCode().String()
		if s.GetLimitRemaining() == math.MaxUint32 {
			text += " unlimited"
		} else if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d of %d/%s", s.GetLimitRemaining(), l.GetRequestsPerUnit(),
				l.GetUnit())
		}
	}
	return text
}

// count returns how many hits a key has in the last hour.
func (b *bed) count(namespace, key string) int64 {
	b.t.Helper()
	op := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{NS: []byte(namespace),
		Key: []byte(key), N: 1, Limits: []twotier.Limit{{Window: 3_600_000}}}}}
	var res twotier.Result
	must.Succeed(b.t, b.counter.Do(b.t.Context(), &op, &res))
	return res.Checks[0].Limits[0].Hi
}

func (b *bed) want(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLimits(t *testing.T) {
	b := start(t)
	for _, want := range []string{"OK: OK 2 of 3/MINUTE", "OK: OK 1 of 3/MINUTE",
		"OK: OK 0 of 3/MINUTE", "OVER_LIMIT: OVER_LIMIT 0 of 3/MINUTE"} {
		b.want(b.ask(descriptor("ip=1.2.3.4")), want)
	}
	b.want(b.ask(descriptor("ip=1.2.3.5")), "OK: OK 2 of 3/MINUTE") // each value has its own
	b.want(b.ask(descriptor("ip=6.6.6.6")), "OVER_LIMIT: OVER_LIMIT 0 of 0/SECOND")
	b.want(b.ask(descriptor("ip=1.2.3.4"), descriptor("path=/free")),
		"OVER_LIMIT: OVER_LIMIT 0 of 3/MINUTE OK unlimited")
	b.want(b.ask(descriptor("nobody=x"), descriptor("known=x"), descriptor("path=/a")),
		"OK: OK OK OK")
	if n := b.count("edge", "ip=1.2.3.4"); n != 3 {
		t.Errorf("counted %d, want 3: refused requests don't count", n)
	}
	b.now.Add(61_000) // a sliding window: all of it is free again
	b.want(b.ask(descriptor("ip=1.2.3.4")), "OK: OK 2 of 3/MINUTE")
}

func TestDomainsAreApart(t *testing.T) {
	b := start(t)
	b.want(b.ask(descriptor("ip=1")), "OK: OK 2 of 3/MINUTE")
	b.want(b.send(asking("other", descriptor("ip=1"))), "OK: OK 0 of 1/MINUTE")
	b.want(b.send(asking("unknown", descriptor("ip=1"))), "OK: OK")
}

func TestReplaces(t *testing.T) {
	b := start(t)
	b.want(b.ask(descriptor("user=u"), descriptor("user=u path=/a")), "OK: OK OK 8 of 9/MINUTE")
	b.want(b.ask(descriptor("user=u")), "OK: OK 4 of 5/HOUR")
}

func TestOverride(t *testing.T) {
	b := start(t)
	b.want(b.ask(limitedTo(typev3.RateLimitUnit_DAY, "path=/try")), "OK: OK 0 of 1/DAY")
	b.want(b.ask(limitedTo(typev3.RateLimitUnit_DAY, "path=/try")), // it is not in shadow mode
		"OVER_LIMIT: OVER_LIMIT 0 of 1/DAY")
}

// TestKeysAreUnambiguous: no value that a client chooses makes a descriptor equal to another one.
func TestKeysAreUnambiguous(t *testing.T) {
	b := start(t)
	b.ask(hits(descriptor("user=u path=/a"), 9))
	b.want(b.ask(descriptor("user=u|path=/a")), "OK: OK 4 of 5/HOUR")
	b.want(b.ask(descriptor("user=u%7Cpath=/a")), "OK: OK 4 of 5/HOUR")
	b.want(b.ask(descriptor("user=\x01")), "OK: OK 4 of 5/HOUR")
	b.want(b.ask(descriptor("user="+strings.Repeat("x", 1000))), "OK: OK 4 of 5/HOUR")
	for _, key := range []string{"user=u|path=/a", "user=u%7Cpath%3D/a", "user=u%257Cpath%3D/a",
		"user=%01"} {
		if b.count("edge", key) == 0 {
			t.Errorf("nothing is counted as %s", key)
		}
	}
}

func TestResponseHeaders(t *testing.T) {
	b := start(t)
	headers := func(descriptors ...*commonv3.RateLimitDescriptor) string {
		answer, err := b.ShouldRateLimit(t.Context(), nil, asking("edge", descriptors...))
		must.Succeed(t, err)
		text := ""
		for _, h := range answer.GetResponseHeadersToAdd() {
			text += h.GetKey() + ": " + h.GetValue() + "\n"
		}
		return text
	}
	b.want(headers(descriptor("user=u"), descriptor("ip=1"), descriptor("path=/try"),
		descriptor("path=/free")), `RateLimit-Limit: 3
RateLimit-Remaining: 2
RateLimit-Reset: 60
RateLimit-Policy: "per_user";q=5;w=7200, "ip#1";q=3;w=60
RateLimit: "per_user";r=4, "ip#1";r=2
`)
	b.now.Add(20_000)
	b.want(headers(hits(descriptor("ip=1"), 3)), `RateLimit-Limit: 3
RateLimit-Remaining: 2
RateLimit-Reset: 40
RateLimit-Policy: "ip";q=3;w=60
RateLimit: "ip";r=2;t=40
Retry-After: 40
`)
	b.want(headers(hits(descriptor("ip=1"), 4)), `RateLimit-Limit: 3
RateLimit-Remaining: 2
RateLimit-Reset: 60
RateLimit-Policy: "ip";q=3;w=60
RateLimit: "ip";r=2
`)
	// A comparison waits for room for one hit if the limit is used up.
	const waits = `RateLimit-Limit: 3
RateLimit-Remaining: 0
RateLimit-Reset: 40
RateLimit-Policy: "ip";q=3;w=60
RateLimit: "ip";r=0;t=40
Retry-After: 40
`
	b.ask(hits(descriptor("ip=1"), 2))
	b.now.Add(20_000)
	b.want(headers(hits(descriptor("ip=1"), 0)), strings.ReplaceAll(waits, "40", "20"))
	b.ask(hits(descriptor("ip=3"), 3))
	b.now.Add(20_000)
	b.want(headers(hits(descriptor("ip=3"), 0)), waits)
	b.want(headers(descriptor("path=/free"), descriptor("path=/try")), "")
}

func TestBadRequests(t *testing.T) {
	b := start(t)
	b.want(b.send(&ratelimitv3.RateLimitRequest{}), "domain: missing")
	b.want(b.send(&ratelimitv3.RateLimitRequest{Domain: "edge"}), "descriptors: want at least one")
	many := make([]*commonv3.RateLimitDescriptor, 1025)
	b.want(b.ask(many...), "descriptors: want at most 1024")
	b.want(b.ask(nil, &commonv3.RateLimitDescriptor{}), "OK: OK OK")
}

// TestFailures: a partly executed request has an unknown outcome; any other failed request has
// counted nothing.
func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		fail twotier.Kind
		err  error
		want request.Kind
	}{
		{twotier.Acquire, twotier.ErrUnavailable, request.Unavailable},
		{twotier.Acquire, twotier.ErrOverload, request.Overload},
		{twotier.Acquire, twotier.ErrUnknownOutcome, request.Unknown},
		{twotier.Acquire, errors.New("other"), request.Internal},
		{twotier.Add, twotier.ErrUnavailable, request.Unknown}, // the acquire has counted
	} {
		b := start(t)
		b.fail[tt.fail] = tt.err
		_, err := b.ShouldRateLimit(t.Context(), nil, asking("edge", descriptor("ip=1"),
			hits(descriptor("ip=2"), 0), hits(descriptor("ip=3"), -1)))
		f, ok := errors.AsType[*request.Failure](err)
		if !ok || f.Kind != tt.want {
			t.Errorf("%v of kind %d: %v", tt.err, tt.fail, err)
		}
	}
}

// TestTakingBackInDoubt: the request only takes hits back, and one of its two descriptors may have
// been executed.
func TestTakingBackInDoubt(t *testing.T) {
	b := start(t)
	l := envoy.NewLimiter(doubtful{b}, b.book, b.counted)
	_, err := l.ShouldRateLimit(t.Context(), nil, asking("edge", hits(descriptor("ip=1"), -1),
		hits(descriptor("ip=2"), -1)))
	if f, ok := errors.AsType[*request.Failure](err); !ok || f.Kind != request.Unknown {
		t.Errorf("told %v, want that the outcome is unknown", err)
	}
}

// doubtful reports an unknown outcome for the last operation of a batch, and refuses the others.
type doubtful struct{ *bed }

func (doubtful) DoAll(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = twotier.ErrUnavailable
	}
	res[len(ops)-1].Err = twotier.ErrUnknownOutcome
}

func TestJSON(t *testing.T) {
	b := start(t)
	const body = `{"domain":"edge","descriptors":[{"entries":[{"key":"ip","value":"1"}],` +
		`"hitsAddend":"3"}]}`
	for _, wantOver := range []bool{false, true} {
		answer, over, err := b.JSON(t.Context(), nil, []byte(body))
		text := strings.ReplaceAll(string(answer), " ", "")
		if err != nil || over != wantOver || strings.Contains(text, `"OVER_LIMIT"`) != over ||
			!strings.Contains(text, `"requestsPerUnit":3,"unit":"MINUTE"`) {
			t.Errorf("%v %s %v", over, answer, err)
		}
	}
	for value, want := range map[string]string{`\ud800`: "user=\ufffd", "\xff\xfe": "user=\ufffd",
		`\ud83d\ude00\udc00\\ud800` + "\xff": "user=\U0001f600\ufffd\\ud800\ufffd",
		`\ud83da\\\`:                         "", `\u12`: ""} {
		_, _, err := b.JSON(t.Context(), nil, []byte(`{"domain":"edge","descriptors":[{"entries":[`+
			`{"key":"user","value":"`+value+`"}]}]}`))
		if (err == nil) != (want != "") || err == nil && b.count("edge", want) == 0 {
			t.Errorf("%s: %v, and %d of %s", value, err, b.count("edge", want), want)
		}
	}
	for _, bad := range []string{"", "[]", `{"domains":"x"}`, `{"domain":"edge"}`} {
		if _, _, err := b.JSON(t.Context(), nil, []byte(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
