package leaparray_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// TestBefore walks from the newest bucket that holds something to the oldest, in one counter and in
// the sum of two, of which one may have taken back what the other has, and compares each step with
// a search through all buckets.
func TestBefore(t *testing.T) {
	l, err := leaparray.NewLadder(leaparray.Level{Width: time.Second, Count: 20},
		leaparray.Level{Width: time.Minute, Count: 10})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		v := leaparray.View{Ladder: l}
		for range 1 + rnd.IntN(60) {
			to, n := &v.A, rnd.Int64N(4)
			if rnd.IntN(3) == 0 {
				to, n = &v.B, n-2
			}
			level, idx := rnd.IntN(2), 1000+rnd.Int64N(30)
			if _, ok := l.Add(*to, level, idx, n); !ok {
				*to = l.Grow(*to, leaparray.Heap{}, level, idx, n)
				l.Add(*to, level, idx, n)
			}
		}
		for level := range l.Len() {
			at := v.Head(level) + 1
			for idx := at - 1; idx > 900; idx-- {
				if n := v.Value(level, idx); n > 0 {
					before, held := v.Before(level, at)
					if before != idx || held != n {
						t.Fatalf("seed %d: %d in bucket %d is before %d, found %d in %d", seed, n,
							idx, at, held, before)
					}
					at = before
				}
			}
			if before, n := v.Before(level, at); before != -1 || n != 0 {
				t.Fatalf("seed %d: %d in bucket %d is before %d, all are found", seed, n, before,
					at)
			}
		}
	}
}
