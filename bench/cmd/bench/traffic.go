package main

import (
	"math/rand/v2"
	"slices"
)

// perSecond is the mean rate of every shape.
const perSecond = 2

// A shape makes traffic: times in milliseconds, in order, from 0 up to a length.
type shape struct {
	name, about string
	times       func(r *rand.Rand, length int64) []int64
}

func shapes() []shape {
	return []shape{
		{"steady", "One event at a time, at random moments (Poisson)",
			func(r *rand.Rand, length int64) []int64 { return bursts(r, length, 1, 1) }},
		{"bursts", "A hundred events within a second, at random moments (Poisson)",
			func(r *rand.Rand, length int64) []int64 { return bursts(r, length, 100, 1000) }},
		{"ends of minutes", "All events of a minute within its last two seconds, as scheduled " +
			"jobs and clients that wait for a calendar minute send them", endsOfMinutes},
	}
}

// bursts returns bursts of events, each spread over some milliseconds, at random moments.
func bursts(r *rand.Rand, length int64, size int, spread int64) (times []int64) {
	const second = 1000
	for at := 0.0; ; {
		at += r.ExpFloat64() * second / perSecond * float64(size)
		if int64(at)+spread > length {
			slices.Sort(times)
			return times
		}
		for range size {
			times = append(times, int64(at)+r.Int64N(spread))
		}
	}
}

func endsOfMinutes(r *rand.Rand, length int64) (times []int64) {
	const minute = 60_000
	for end := int64(minute); end <= length; end += minute {
		for range perSecond * 60 {
			times = append(times, end-1-r.Int64N(2000))
		}
	}
	slices.Sort(times)
	return times
}
