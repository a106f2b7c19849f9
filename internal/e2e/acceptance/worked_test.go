package acceptance

import (
	"fmt"
	"testing"
	"time"
)

const minute = int64(60_000)

func TestFivePerMinuteSevenTriesAtOnce(t *testing.T) {
	withBothClocks(t, func(t *testing.T, b *bed, tl *timeline) {
		tl.begin(time.Minute)
		for i := range 7 {
			a := b.ok("/v1/acquire", `{"key":"18829340001","limits":[{"window":"60s","max":5}]`+
				tl.ts()+`}`)
			if a.Allowed != (i < 5) || a.Limits[0].Count != int64(min(i+1, 5)) ||
				a.Limits[0].Refused != (i >= 5) {
				t.Errorf("try %d: %+v", i+1, a)
			}
			if i >= 5 && (len(a.RefusedBy) != 1 || a.RefusedBy[0] != "limits[0]" ||
				a.RetryAfter < 59_000 || a.RetryAfter > 61_000) {
				t.Errorf("try %d: refused by %v, retry after %d ms", i+1, a.RefusedBy, a.RetryAfter)
			}
		}
	})
}

func TestTenPerFiveMinutes(t *testing.T) {
	withBothClocks(t, func(t *testing.T, b *bed, tl *timeline) {
		tl.begin(7 * time.Minute)
		eleven := tl.at
		tl.to(eleven + minute)
		b.ok("/v1/add", `{"key":"k"`+tl.ts()+`}`)
		tl.to(eleven + 5*minute)
		b.ok("/v1/add", `{"key":"k","n":8`+tl.ts()+`}`)
		tl.to(eleven + 6*minute)
		passed := 0
		for range 8 {
			if b.ok("/v1/acquire", `{"key":"k","limits":[{"window":"5m","max":10}]`+tl.ts()+
				`}`).Allowed {
				passed++
			}
		}
		if passed != 2 { // the first event has just left the window
			t.Errorf("%d of 8 passed, want 2", passed)
		}
	})
}

func TestFiveSecondWindow(t *testing.T) {
	withBothClocks(t, func(t *testing.T, b *bed, tl *timeline) {
		tl.begin(10 * time.Second)
		start := tl.at
		b.ok("/v1/add", `{"key":"k"`+tl.ts()+`}`)
		tl.to(start + 3000)
		b.ok("/v1/add", `{"key":"k","n":2`+tl.ts()+`}`)
		for _, step := range []struct{ at, want int64 }{{4000, 3}, {7000, 2}, {9000, 0}} {
			if !tl.stamped {
				tl.to(start + step.at)
				if got := b.count("k", "5s"); got.Count != step.want || got.Min != step.want ||
					got.Max != step.want {
					t.Errorf("at %d: %+v, want %d", step.at, got, step.want)
				}
			}
			if got := b.count("k", "5s", start+step.at); got.Count != step.want ||
				got.Max != step.want {
				t.Errorf("at=%d: %+v, want %d", step.at, got, step.want)
			}
		}
	})
}

func TestThreshold(t *testing.T) {
	withBothClocks(t, func(t *testing.T, b *bed, tl *timeline) {
		tl.begin(time.Minute)
		body := func(key string, n int) string {
			return fmt.Sprintf(`{"key":%q,"n":%d,"limits":[{"window":"1m","max":100}]%s}`, key, n,
				tl.ts())
		}
		for _, step := range []struct {
			n, count int64
			over     bool
		}{{50, 50, false}, {60, 110, true}, {10, 120, true}} {
			if a := b.ok("/v1/add", body("added", int(step.n))); a.Over != step.over ||
				a.Counts[0].Max != step.count {
				t.Errorf("add %d: %+v", step.n, a)
			}
		}
		if got := b.count("added", "1m", tl.at).Max; got != 120 {
			t.Errorf("stored %d, want 120", got)
		}
		for _, step := range []struct {
			n  int
			ok bool
		}{{50, true}, {20, true}, {50, false}} {
			if a := b.ok("/v1/acquire", body("acquired", step.n)); a.Allowed != step.ok {
				t.Errorf("acquire %d: %+v", step.n, a)
			}
		}
		if got := b.count("acquired", "1m", tl.at).Max; got != 70 {
			t.Errorf("stored %d, want 70", got)
		}
	})
}
