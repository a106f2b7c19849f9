package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/request"
)

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
		list = append(list, &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(each),
			Entries: descriptor(fmt.Sprint("bytes=", i)).Entries})
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
			list[i] = &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(3e9),
				Entries: descriptor(fmt.Sprint("bytes=", i)).Entries}
		}
		_, err := l.ShouldRateLimit(t.Context(), nil,
			&ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: list})
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
	own := descriptor("ip=1")
	own.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1,
		Unit: typev3.RateLimitUnit_HOUR}
	b.want(b.ask(hits(own, 0), descriptor("ip=2"), hits(descriptor("user=u"), -1)),
		"OVER_LIMIT: OVER_LIMIT 0 of 1/HOUR OK 3 of 3/MINUTE OK 4 of 5/HOUR")
	if n, m := b.count("edge", "ip=2"), b.count("edge", "user=u"); n != 0 || m != 1 {
		t.Errorf("counted %d and %d, want 0 and 1", n, m)
	}
}
