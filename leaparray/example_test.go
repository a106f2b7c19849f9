package leaparray_test

import (
	"fmt"
	"time"

	"twotier.dev/twotier/leaparray"
)

// record adds n events at a moment to every level, and returns the counter, which may have grown.
func record(l *leaparray.Ladder, c leaparray.Counter, ms, n int64) leaparray.Counter {
	for level := range l.Len() {
		at := l.Index(level, ms)
		if _, ok := l.Add(c, level, at, n); !ok {
			c = l.Grow(c, leaparray.Heap{}, level, at, n)
			l.Add(c, level, at, n)
		}
	}
	return c
}

// One ladder answers any window at read time, with bounds.
func Example() {
	ladder, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 1, 2, 12, 0, 30, 0, time.UTC).UnixMilli()
	var c leaparray.Counter
	c = record(ladder, c, now-3*60*60*1000, 10) // three hours ago
	c = record(ladder, c, now-20_000, 3)
	c = record(ladder, c, now, 2)

	view := leaparray.View{Ladder: ladder, A: c}
	for _, window := range []time.Duration{10 * time.Second, time.Minute, 24 * time.Hour} {
		e, _ := view.Count(window.Milliseconds(), now, true)
		fmt.Printf("%v: %d to %d, from buckets of %d ms\n", window, e.Lo, e.Hi, e.Bucket)
	}
	fmt.Println("room for one more of 5 a minute in", view.RetryAfter(60_000, now, 1, 5), "ms")
	// Output:
	// 10s: 2 to 2, from buckets of 1000 ms
	// 1m0s: 5 to 5, from buckets of 1000 ms
	// 24h0m0s: 15 to 15, from buckets of 900000 ms
	// room for one more of 5 a minute in 40999 ms
}
