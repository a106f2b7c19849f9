package syncer_test

import (
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestABanKeepsItsEnd changes the length in the rule: a longer one revives no ban, and a shorter
// one ends none, neither in memory nor in another counter that has loaded the ban. The end follows
// from the original length, to the millisecond.
func TestABanKeepsItsEnd(t *testing.T) {
	for _, test := range []struct{ length, changed time.Duration }{
		{2 * time.Second, time.Hour}, {2 * time.Second, 24 * time.Hour},
		{time.Hour, 2 * time.Second}, {2 * time.Hour, 2 * time.Second},
		{24 * time.Hour, time.Minute}, {time.Hour, 24 * time.Hour},
	} {
		clk, store := &clock{now: t0 + 777}, embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Now: clk.Now, Store: store})
		length, changed := test.length.Milliseconds(), test.changed.Milliseconds()
		op := banned("k", 2, length, 0, limits(1000, 1))
		res := do(t, c, op)
		end := res.Checks[1].Limits[0].Hi
		if end != clk.Now()+length {
			t.Fatalf("%+v: a ban of %d ms", test, end-clk.Now())
		}
		flush(t, c)
		other := open(t, syncer.Options{Now: clk.Now, Store: store})
		op = banned("k", 1, changed, 0, limits(1000, 1))
		op.DryRun = true
		for _, at := range []int64{t0 + 800, end - 1, end, end + 1000, end + 3_500_000} {
			clk.set(at)
			for of, c := range []*syncer.Counter{c, other} {
				if r := do(t, c, op).Checks[1]; r.Refused != (at < end) ||
					r.Refused && (r.Limits[0].Hi != end || r.RetryAfter != end-at) {
					t.Errorf("%+v: counter %d, %d ms before the end: %+v", test, of, end-at, r)
				}
			}
		}
	}
}

// TestTheLastBanCounts starts bans in two counters of a view, and takes one back.
func TestTheLastBanCounts(t *testing.T) {
	v := leaparray.View{Ladder: syncer.CompanionLadders()[twotier.BanNamespace], Now: t0}
	for _, end := range []int64{t0 - 5, t0 + 30, t0 + 7000, t0 + 86_400_000} {
		v.Put(&v.A, leaparray.Heap{}, leaparray.Moment(end), 1)
		v.Put(&v.B, leaparray.Heap{}, leaparray.Moment(end-1), 1)
		if got := decide.BanEnd(v); end > t0 && got != end || end < t0 && got != 0 {
			t.Errorf("the last ban ends %d ms from now, want %d", got-t0, end-t0)
		}
	}
	v.Put(&v.B, leaparray.Heap{}, leaparray.Moment(t0+86_400_000), -1)
	if got := decide.BanEnd(v); got != t0+86_399_999 {
		t.Errorf("the last ban ends %d ms from now", got-t0)
	}
}
