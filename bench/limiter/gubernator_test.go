package limiter_test

import (
	"fmt"
	"testing"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/internal/testing/must"
)

// TestGubernatorCountsOnce checks that, through any node, one by one or many at a time, each rule
// of each key admits exactly its limit. Calls with many events have one rule each: events under
// several rules that are decided together may be refused although there is room, see Gubernator.
func TestGubernatorCountsOnce(t *testing.T) {
	hour, day := limiter.Limit{Window: 3_600_000, Max: 4}, limiter.Limit{Window: 86_400_000, Max: 6}
	for _, nodes := range []int{1, 3} {
		c, err := limiter.NewGubernator(t.Context(), nodes)
		must.Succeed(t, err)
		defer c.Close()
		const keys, before = 5, 3
		for i := range keys * before {
			one := call(fmt.Sprint("k", i%keys), 1, 0, []limiter.Limit{hour, day})
			if ok, err := limiter.Ask(t.Context(), c, one); err != nil || !ok {
				t.Fatalf("%s: call %d: allowed=%t, %v", c.Name(), i, ok, err)
			}
		}
		for _, rule := range []limiter.Limit{hour, day} {
			var calls []limiter.Call
			for i := range keys * 2 * int(rule.Max) {
				calls = append(calls, call(fmt.Sprint("k", i%keys), 1, 0, []limiter.Limit{rule}))
			}
			n, err := c.Decide(t.Context(), calls)
			if want := keys * (int(rule.Max) - before); err != nil || n != want {
				t.Errorf("%s: %d of %d admitted where there was room for %d, %v", c.Name(), n,
					len(calls), want, err)
			}
		}
	}
}
