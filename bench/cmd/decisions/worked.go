package main

import (
	"context"
	"fmt"

	"twotier/bench/limiter"
	"twotier/bench/trace"
)

// Example is a story small enough to be checked by hand: at most 10 in any 5 minutes.
type Example struct {
	Title string
	Steps []Step
}

// Step is a number of tries at a time after eleven.
type Step struct {
	Minute, Second int64
	Tries          int
}

var examples = []Example{
	{"1 at 11:01:00, 8 at 11:05:00; of 8 tries at 11:06:00", []Step{{1, 0, 1}, {5, 0, 8}, {6, 0, 8}}},
	{"1 at 11:01:30, 8 at 11:05:00; of 8 tries at 11:06:00", []Step{{1, 30, 1}, {5, 0, 8}, {6, 0, 8}}},
	{"1 at 11:01:10, 8 at 11:05:00; of 8 tries at 11:06:40", []Step{{1, 10, 1}, {5, 0, 8}, {6, 40, 8}}},
	{"10 at 11:04:50; of 10 tries at 11:05:10", []Step{{4, 50, 10}, {5, 10, 10}}},
}

var exampleLimit = []limiter.Limit{{Window: 5 * 60_000, Max: 10}}

// run plays an example and returns how many tries of the last step were admitted. Eleven is the time of eleven o'clock in
// unix milliseconds.
func (e Example) run(ctx context.Context, l limiter.Limiter, key string, eleven int64) (int, error) {
	var events []trace.Event
	for _, s := range e.Steps {
		for range s.Tries {
			events = append(events, trace.Event{
				TS:     eleven + (s.Minute*60+s.Second)*1000,
				Checks: []limiter.Check{{Key: key, N: 1, Limits: exampleLimit}},
			})
		}
	}
	t, err := replay(ctx, l, events)
	if err != nil {
		return 0, fmt.Errorf("example %q: %w", e.Title, err)
	}
	admitted := 0
	for _, allowed := range t.decisions[len(events)-e.Steps[len(e.Steps)-1].Tries:] {
		if allowed {
			admitted++
		}
	}
	return admitted, nil
}
