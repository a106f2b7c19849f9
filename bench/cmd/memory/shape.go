package main

import (
	"slices"
	"time"
)

// A shape is a population of keys that all have events at the same times.
type shape struct {
	name string
	keys int
	// rivalKeys are how many of them the limiters in Redis get: bytes for each key don't depend on it, and filling long
	// logs that are read for every event takes its time.
	rivalKeys int
	// ages are how long before now each key has an event, the oldest first.
	ages []time.Duration
}

// reach is less than a day, so that filling may take a while.
const reach = 24*time.Hour - 20*time.Minute

// shapes returns the populations: one event for each key, thirty spread over a day, and one in every bucket.
func shapes(one, thirty, every int) []shape {
	var spread []time.Duration
	for i := range 30 {
		spread = append(spread, reach*time.Duration(30-i)/30)
	}
	var all []time.Duration
	for _, level := range []struct {
		width time.Duration
		count int
	}{{15 * time.Minute, 95}, {time.Minute, 60}, {time.Second, 60}} {
		for i := range level.count {
			all = append(all, level.width*time.Duration(level.count-1-i))
		}
	}
	slices.SortFunc(all, func(a, b time.Duration) int { return int(b - a) })
	return []shape{
		{"1 event", one, min(one, 200_000), []time.Duration{0}},
		{"30 events in 24 h", thirty, min(thirty, 20_000), spread},
		{"every bucket live", every, min(every, 1000), slices.DeleteFunc(all, func(age time.Duration) bool { return age > reach })},
	}
}
