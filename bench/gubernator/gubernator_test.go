package gubernator_test

import (
	"fmt"
	"testing"

	"twotier/bench/gubernator"
	"twotier/bench/limiter"
)

func TestClusterCountsOnce(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		c, err := gubernator.Start(t.Context(), nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		limits := []limiter.Limit{{Window: 3_600_000, Max: 4}, {Window: 86_400_000, Max: 6}}
		var calls []limiter.Call
		admitted := 0
		for i := range 30 {
			check := []limiter.Check{{Key: fmt.Sprint("k", i%5), N: 1, Limits: limits}}
			calls = append(calls, limiter.Call{Checks: check})
			if i%2 == 0 {
				continue
			}
			ok, err := c.AcquireAll(t.Context(), check, 0)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				admitted++
			}
		}
		n, err := c.AcquireEach(t.Context(), calls)
		if err != nil || admitted+n != 5*4 {
			t.Errorf("%s: %d and %d of 5 keys with room for 4, %v", c.Name(), admitted, n, err)
		}
	}
}
