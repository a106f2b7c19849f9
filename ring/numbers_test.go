package ring_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/ring"
)

// TestNumbersAreLearned has nodes that could not ask the store join one that says how the levels of
// its ladders are numbered, and has more to say than what there is room for.
func TestNumbersAreLearned(t *testing.T) {
	long := strings.Repeat("1s x 60, ", 60)
	for _, tt := range []struct {
		numbers, learned string
		compared, joins  bool
	}{
		{"", "", false, true}, {"2,0,1", "2,0,1", false, true}, {"2,0,1", "", true, true},
		{"unusable", "unusable", false, false}, {long, "?", false, false}, {long, "", true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := newVillage(t, lan())
			for i := 1; i <= 2; i++ {
				if _, err := v.start(i, func(o *ring.Options) {
					o.Agreement.Compared = func() bool { return true }
				}); err != nil {
					t.Fatal(err)
				}
			}
			v.rings[ip(1)].SetNumbers(context.Background(), tt.numbers)
			v.rings[ip(2)].SetNumbers(context.Background(), tt.numbers)
			time.Sleep(time.Minute)
			var learned atomic.Value
			learned.Store("")
			_, err := v.start(3, func(o *ring.Options) {
				o.Agreement.Compared = func() bool { return tt.compared }
				o.Agreement.Learn = func(numbers string) bool {
					learned.Store(numbers)
					return numbers == "2,0,1"
				}
			})
			if err == nil {
				v.agree(30*time.Second, 3, 1, 2, 3)
			}
			if learned.Load() != tt.learned || tt.joins && err != nil ||
				!tt.joins && !errors.Is(err, ring.ErrRefused) {
				t.Errorf("%+v: it learned %q, %v", tt, learned.Load(), err)
			}
		})
	}
}
