package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestValuesBesideEvents acquires events of one key and values of the same and of another key: both
// are counted, or none. Values leave a window one by one.
func TestValuesBesideEvents(t *testing.T) {
	each(t, true, func(t *testing.T, b *bed) {
		acquire := func(value string) answer {
			return b.ok("/v1/acquire", fmt.Sprintf(`{"checks":[{"key":"account","values":["%s"],`+
				`"value_limits":[{"window":"1m","max":2}],"limits":[{"window":"1h","max":4}]},`+
				`{"key":"address","values":["%[1]s"],"value_limits":[{"window":"1h","max":9}]}]}`,
				value))
		}
		distinct := func(key string) int64 {
			return b.get("/v1/distinct", "key", key, "window", "1h").Counts[0].Count
		}
		for i, step := range []struct {
			value, refused          string
			events, values, address int64
		}{
			{"a", "", 1, 1, 1},
			{"b", "", 2, 2, 2},
			{"c", "checks[0].value_limits[0]", 2, 2, 2},
			{"a", "", 3, 2, 2},
			{"d", "", 4, 3, 3},                    // once b has left the window
			{"e", "checks[0].limits[0]", 4, 3, 3}, // once a has
		} {
			if i > 0 {
				b.mono.Add(int64(19 * time.Second))
			}
			if i >= 4 {
				b.mono.Add(int64(30 * time.Second))
			}
			a := acquire(step.value)
			if by := strings.Join(a.RefusedBy, " "); by != step.refused ||
				a.Allowed != (by == "") || a.Allowed != (a.RetryAfter == 0) {
				t.Errorf("step %d: %+v", i, a)
			}
			if e, v, o := b.count("account", "1h").Max, distinct("account"),
				distinct("address"); e != step.events || v != step.values || o != step.address {
				t.Errorf("step %d: %d events, %d and %d values", i, e, v, o)
			}
		}
		if n := b.count("address", "1h").Max; n != 0 {
			t.Errorf("%d events of a key without limits on events", n)
		}
	})
}
