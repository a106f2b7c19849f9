package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// TestDirectBanKeepsItsEnd changes the length in a rule: a longer one revives no ban, and a shorter
// one ends none.
func TestDirectBanKeepsItsEnd(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	now := clk.now.Load()
	ask := func(key string, n int64, length time.Duration) (ban *twotier.CheckResult) {
		t.Helper()
		key = "k" + key
		op := twotier.Op{Kind: twotier.Acquire, DryRun: n == 1, Checks: []twotier.Check{
			check(key, n, 1000, 1),
			{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1},
				Limits: limits(length.Milliseconds(), 0)}}}
		op.Checks[1].NS, op.Checks[1].Key = twotier.BanKey(nil, "rule", []byte(key))
		res := do(t, d, op)
		return &res.Checks[1]
	}
	for i, test := range []struct{ length, changed time.Duration }{
		{2 * time.Second, time.Hour}, {2 * time.Second, 24 * time.Hour},
		{time.Hour, 2 * time.Second}, {2 * time.Hour, 2 * time.Second},
		{24 * time.Hour, time.Minute}, {time.Hour, 24 * time.Hour},
	} {
		now += 123
		clk.now.Store(now)
		key := fmt.Sprint(i)
		end := ask(key, 2, test.length).Limits[0].Hi
		if length := test.length.Milliseconds(); end != now+length {
			t.Fatalf("%+v: a ban of %d ms", test, end-now)
		}
		for _, at := range []int64{now + 1, end - 1, end, end + 1000, end + 3_500_000} {
			clk.now.Store(at)
			if r := ask(key, 1, test.changed); r.Refused != (at < end) ||
				r.Refused && (r.Limits[0].Hi != end || r.RetryAfter != end-at) {
				t.Errorf("%+v: %d ms before the end: %+v", test, end-at, r)
			}
		}
	}
}
