package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// oneLadder is the ladder of every namespace.
type oneLadder struct{ *leaparray.Ladder }

func (o oneLadder) Of(string) *leaparray.Ladder { return o.Ladder }

// observed counts warnings by code and place.
type observed map[string]int

func (o observed) Observe(code warning.Code, at string) { o[string(code)+" at "+at]++ }

// startOn returns a bed whose namespaces have the given ladder, and its warnings.
func startOn(t testing.TB, ladder *leaparray.Ladder) (*bed, observed) {
	t.Helper()
	b, seen := start(t), observed{}
	counter, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}),
		Now: b.now.Load, Namespaces: map[string]syncer.Namespace{"default": {Ladder: ladder}}})
	must.Succeed(t, err)
	must.Succeed(t, counter.Open(t.Context()))
	t.Cleanup(func() { must.Succeed(t, counter.Close(context.Background())) })
	b.counter = counter
	b.Warnings, b.Ladders = seen, oneLadder{ladder}
	return b, seen
}

func ladderOf(t testing.TB, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	ladder, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	must.Succeed(t, err)
	return ladder
}

// limitedTo gives a descriptor a limit of one per unit.
func limitedTo(unit typev3.RateLimitUnit, text string) *commonv3.RateLimitDescriptor {
	d := descriptor(text)
	d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: unit}
	return d
}

// TestLimitsOfRequestsBeyondTheLadder sends a limit in every unit, and in ones that don't exist, to
// namespaces that cover a day, a second, less, and a year: each is decided, and a warning reports
// each that can't be judged as it is.
func TestLimitsOfRequestsBeyondTheLadder(t *testing.T) {
	const tenth = 100 * time.Millisecond
	second, halfSecond := leaparray.Level{Width: tenth, Count: 10},
		leaparray.Level{Width: tenth, Count: 5}
	year := leaparray.Level{Width: 6 * time.Hour, Count: 1461}
	type units map[typev3.RateLimitUnit]string // the unit that is judged, if it is another one
	for _, tt := range []struct {
		ladder *leaparray.Ladder
		judged units
	}{
		{leaparray.Default(), units{typev3.RateLimitUnit_MINUTE: "", typev3.RateLimitUnit_DAY: "",
			typev3.RateLimitUnit_MONTH: "DAY", typev3.RateLimitUnit_YEAR: "DAY",
			typev3.RateLimitUnit_UNKNOWN: "none", 7: "none", 99: "none"}},
		{ladderOf(t, second), units{typev3.RateLimitUnit_SECOND: "",
			typev3.RateLimitUnit_MINUTE: "SECOND", typev3.RateLimitUnit_YEAR: "SECOND"}},
		{ladderOf(t, halfSecond), units{typev3.RateLimitUnit_SECOND: "none",
			typev3.RateLimitUnit_YEAR: "none"}},
		{ladderOf(t, year), units{typev3.RateLimitUnit_MONTH: "", typev3.RateLimitUnit_YEAR: ""}},
	} {
		for unit, as := range tt.judged {
			checkLimitOfRequest(t, tt.ladder, unit, as)
		}
	}
	b, seen := startOn(t, leaparray.Default())
	b.want(b.ask(limitedTo(typev3.RateLimitUnit_UNKNOWN, "ip=1")), "OK: OK 2 of 3/MINUTE")
	b.want(b.ask(limitedTo(typev3.RateLimitUnit_DAY, "")), "OK: OK")
	if len(seen) != 2 {
		t.Errorf("warnings %v", seen)
	}
}

// checkLimitOfRequest asks twice with a limit of one per unit.
func checkLimitOfRequest(t *testing.T, ladder *leaparray.Ladder, unit typev3.RateLimitUnit,
	as string) {
	t.Helper()
	b, seen := startOn(t, ladder)
	want := "OK: OK 0 of 1/" + as + " OVER_LIMIT: OVER_LIMIT 0 of 1/" + as
	warned := fmt.Sprintf("map[override-shortened at namespace edge, unit %v:2]", unit)
	switch as {
	case "":
		want, warned = strings.ReplaceAll(want, "/", "/"+unit.String()), "map[]"
	case "none":
		want, warned = "OK: OK OK: OK", strings.Replace(warned, "shortened", "ignored", 1)
	}
	got := b.ask(limitedTo(unit, "nobody=x")) + " " + b.ask(limitedTo(unit, "nobody=x"))
	if got != want || fmt.Sprint(seen) != warned {
		t.Errorf("%v, %v:\ngot  %s and %v\nwant %s and %s", ladder, unit, got, seen, want, warned)
	}
}

// TestManyDescriptors sends more descriptors than one operation has checks: all are counted, or
// none.
func TestManyDescriptors(t *testing.T) {
	b := start(t)
	list := make([]*commonv3.RateLimitDescriptor, 200)
	for i := range list {
		list[i] = descriptor(fmt.Sprint("ip=", i))
	}
	b.want(b.ask(list...), "OK:"+strings.Repeat(" OK 2 of 3/MINUTE", 200))
	b.ask(hits(descriptor("ip=150"), 2))
	b.want(b.ask(list...), "OVER_LIMIT:"+strings.Repeat(" OK 2 of 3/MINUTE", 150)+
		" OVER_LIMIT 0 of 3/MINUTE"+strings.Repeat(" OK 2 of 3/MINUTE", 49))
	for i := range list {
		want := int64(1)
		if i == 150 {
			want = 3
		}
		if n := b.count("edge", fmt.Sprint("ip=", i)); n != want {
			t.Errorf("descriptor %d: %d are counted, want %d", i, n, want)
		}
	}
}

// TestEveryRequestGetsADecision draws requests of every shape that Envoy can send: descriptors with
// and without a limit of the document, limits and hits of their own, none of both, and any number
// of descriptors.
func TestEveryRequestGetsADecision(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(first, 0))
	ladders := []*leaparray.Ladder{leaparray.Default(), ladderOf(t,
		leaparray.Level{Width: time.Second, Count: 3600},
		leaparray.Level{Width: time.Minute, Count: 1500})}
	texts := strings.Split("ip=1 ip=6.6.6.6 path=/free path=/try user=u known=x tokens=a bytes=b "+
		"all=c quota=d budget=e nobody=f ip= =x = \xff=\xfe", " ")
	addends := []uint64{0, 1, 2, 5, 1 << 31, 1 << 32, 1<<64 - 1}
	codes := map[ratelimitv3.RateLimitResponse_Code]int{}
	for _, ladder := range ladders {
		b, _ := startOn(t, ladder)
		for range 600 {
			r := &ratelimitv3.RateLimitRequest{Domain: "edge",
				HitsAddend: uint32(addends[random.IntN(5)])}
			for range 1 + random.IntN(4)*random.IntN(30) {
				d := descriptor(texts[random.IntN(len(texts))])
				if random.IntN(3) == 0 {
					d = limitedTo(typev3.RateLimitUnit(random.IntN(9)), "own=x")
				}
				if random.IntN(3) == 0 {
					d = hits(d, 1-2*random.IntN(2))
					d.HitsAddend.Value = addends[random.IntN(len(addends))]
				}
				r.Descriptors = append(r.Descriptors, d)
			}
			answer, err := b.ShouldRateLimit(t.Context(), nil, r)
			if err != nil {
				t.Fatalf("seed %d: %v: %v", first, r, err)
			}
			if len(answer.GetStatuses()) != len(r.GetDescriptors()) ||
				answer.GetOverallCode() == ratelimitv3.RateLimitResponse_UNKNOWN {
				t.Fatalf("seed %d: %v: %v", first, r, answer)
			}
			codes[answer.GetOverallCode()]++
			b.now.Add(random.Int64N(20_000))
		}
	}
	if codes[ratelimitv3.RateLimitResponse_OK] < 20 ||
		codes[ratelimitv3.RateLimitResponse_OVER_LIMIT] < 20 {
		t.Errorf("seed %d: %v", first, codes)
	}
}

func TestHitsAddend(t *testing.T) {
	b := start(t)
	b.want(b.send(&ratelimitv3.RateLimitRequest{Domain: "edge", HitsAddend: 2,
		Descriptors: []*commonv3.RateLimitDescriptor{descriptor("ip=1"),
			hits(descriptor("user=u"), 4)}}), "OK: OK 1 of 3/MINUTE OK 1 of 5/HOUR")
	b.want(b.ask(hits(descriptor("ip=1"), 2)), "OVER_LIMIT: OVER_LIMIT 1 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=1"), 0)), "OK: OK 1 of 3/MINUTE") // only compares
	b.want(b.ask(hits(descriptor("ip=1"), -2)), "OK: OK 3 of 3/MINUTE")
	b.want(b.ask(hits(descriptor("ip=6.6.6.6"), 0)), "OVER_LIMIT: OVER_LIMIT 0 of 0/SECOND")
}

// TestCharge charges what calls have cost afterwards, and asks before each call: a charge counts
// even if it exceeds the limit, and no call begins at the limit or beyond.
func TestCharge(t *testing.T) {
	b := start(t)
	charge := func(n int) string {
		return b.ask(hits(descriptor("tokens=a"), n), descriptor("ip=1"))
	}
	before := func() string { return b.ask(hits(descriptor("tokens=a"), 0)) }
	b.want(charge(900), "OK: OK 100 of 1000/MINUTE OK 2 of 3/MINUTE")
	b.want(before(), "OK: OK 100 of 1000/MINUTE")
	b.want(charge(300), "OVER_LIMIT: OVER_LIMIT 0 of 1000/MINUTE OK 1 of 3/MINUTE")
	if n, m := b.count("edge", "tokens=a"), b.count("edge", "ip=1"); n != 1200 || m != 2 {
		t.Errorf("counted %d and %d, want 1200 and 2", n, m)
	}
	b.want(before(), "OVER_LIMIT: OVER_LIMIT 0 of 1000/MINUTE")
	b.now.Add(61_000)
	b.want(charge(1000), "OK: OK 0 of 1000/MINUTE OK 2 of 3/MINUTE")
	b.want(before(), "OVER_LIMIT: OVER_LIMIT 0 of 1000/MINUTE")
	// A descriptor without hits that is over its limit does not keep a charge from being counted.
	b.want(b.ask(hits(descriptor("ip=6.6.6.6"), 0), hits(descriptor("tokens=b"), 7)),
		"OVER_LIMIT: OVER_LIMIT 0 of 0/SECOND OK 993 of 1000/MINUTE")
}

// TestManyChargesAreAllCounted charges more than one operation can: thousands of millions of hits,
// which count beyond the limits, together with a descriptor that does not charge.
func TestManyChargesAreAllCounted(t *testing.T) {
	b := start(t)
	const each = 3e9
	list := []*commonv3.RateLimitDescriptor{descriptor("ip=1")}
	for i := range 60 {
		list = append(list, hits(descriptor(fmt.Sprint("bytes=", i)), each))
	}
	want := strings.Repeat(" OK 1000000000 of 4000000000/HOUR", 60)
	b.want(b.ask(list...), "OK: OK 2 of 3/MINUTE"+want)
	want = strings.Repeat(" OVER_LIMIT 0 of 4000000000/HOUR", 60)
	b.want(b.ask(list...), "OVER_LIMIT: OK 1 of 3/MINUTE"+want)
	for i := range 60 {
		if n := b.count("edge", fmt.Sprint("bytes=", i)); n != 2*each {
			t.Errorf("descriptor %d: %d are counted, want %d", i, n, int64(2*each))
		}
	}
	b.want(b.ask(descriptor("ip=1")), "OK: OK 0 of 3/MINUTE")
}

// failing fails every operation from the given one on.
type failing struct {
	*bed
	from int
	err  error
}

func (f *failing) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	f.bed.DoAll(ctx, ops[:f.from], res[:f.from])
	for i := range res[f.from:] {
		res[f.from+i].Err = f.err
	}
}

// TestManyChargesInDoubt charges in several operations, some or all of which fail: the outcome is
// unknown unless nothing was counted.
func TestManyChargesInDoubt(t *testing.T) {
	for _, tt := range []struct {
		from int
		err  error
		want request.Kind
	}{
		{0, twotier.ErrUnavailable, request.Unavailable},
		{0, twotier.ErrUnknownOutcome, request.Unknown},
		{1, twotier.ErrUnavailable, request.Unknown},
	} {
		b := start(t)
		l := envoy.NewLimiter(&failing{b, tt.from, tt.err}, b.book, b.counted)
		list := make([]*commonv3.RateLimitDescriptor, 64)
		for i := range list {
			list[i] = hits(descriptor(fmt.Sprint("bytes=", i)), 3e9)
		}
		_, err := l.ShouldRateLimit(t.Context(), nil,
			asking("edge", list...))
		if f, ok := errors.AsType[*request.Failure](err); !ok || f.Kind != tt.want {
			t.Errorf("%v from operation %d on: %v, want kind %d", tt.err, tt.from, err, tt.want)
		}
	}
}

// TestAnyNumberOfHits asks for the largest number that a request can have. Limits above 2^31 are
// exact.
func TestAnyNumberOfHits(t *testing.T) {
	b := start(t)
	own := func(n uint64) *commonv3.RateLimitDescriptor {
		return &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(n),
			Entries: descriptor("all=x").Entries}
	}
	for _, n := range []uint64{math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1,
		math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		few := own(n)
		few.Entries = descriptor("ip=1").Entries
		b.want(b.ask(few), "OVER_LIMIT: OVER_LIMIT 3 of 3/MINUTE")
		few.IsNegativeHits = true
		b.want(b.ask(few), "OK: OK 3 of 3/MINUTE")
		nobody := own(n)
		nobody.Entries = descriptor("nobody=x").Entries
		b.want(b.ask(nobody), "OK: OK")
	}
	b.want(b.ask(own(3e9)), "OK: OK 1000000000 of 4000000000/HOUR")
	b.want(b.ask(own(3e9)), "OVER_LIMIT: OVER_LIMIT 1000000000 of 4000000000/HOUR")
	b.want(b.ask(own(math.MaxUint64)), "OVER_LIMIT: OVER_LIMIT 1000000000 of 4000000000/HOUR")
	b.want(b.ask(own(1e9), hits(descriptor("ip=1"), 0)),
		"OK: OK 0 of 4000000000/HOUR OK 3 of 3/MINUTE")
	many := make([]*commonv3.RateLimitDescriptor, 64)
	for i := range many {
		many[i] = own(3e9)
	}
	if got := b.ask(many...); !strings.HasPrefix(got,
		"OVER_LIMIT: OVER_LIMIT 0 of 4000000000/HOUR OVER") {
		t.Error(got)
	}
	back := own(3_500_000_000)
	back.IsNegativeHits = true
	b.want(b.ask(back), "OK: OK 3500000000 of 4000000000/HOUR")
}

// TestNoHitsHold: a descriptor without hits that is over its limit keeps the others from being
// counted, but negative hits are still taken back.
func TestNoHitsHold(t *testing.T) {
	b := start(t)
	b.ask(hits(descriptor("ip=1"), 3))
	b.ask(hits(descriptor("ip=1"), -1))
	b.ask(hits(descriptor("user=u"), 2))
	own := limitedTo(typev3.RateLimitUnit_HOUR, "ip=1")
	b.want(b.ask(hits(own, 0), descriptor("ip=2"), hits(descriptor("user=u"), -1)),
		"OVER_LIMIT: OVER_LIMIT 0 of 1/HOUR OK 3 of 3/MINUTE OK 4 of 5/HOUR")
	if n, m := b.count("edge", "ip=2"), b.count("edge", "user=u"); n != 0 || m != 1 {
		t.Errorf("counted %d and %d, want 0 and 1", n, m)
	}
}
