package acceptance

import (
	"fmt"
	"testing"
	"time"
)

const minute = int64(60_000)

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
