package limiter

import (
	"context"
	"slices"
)

// Exact is the judge: the time of every admitted event, kept for ever. Its zero value is empty and
// ready. It is for one goroutine.
type Exact struct {
	times map[string][]int64
}

// Name is how tables call it.
func (e *Exact) Name() string { return "exact log" }

// Decide decides by the true windows.
func (e *Exact) Decide(_ context.Context, calls []Call) (int, error) {
	return oneByOne(calls, func(c Call) (bool, error) {
		for _, check := range c.Checks {
			for _, l := range check.Limits {
				if e.Held(check.Key, l.Window, c.TS)+check.N > l.Max {
					return false, nil
				}
			}
		}
		e.Record(c)
		return true, nil
	})
}

// Record counts the events of a call, whatever the rules say.
func (e *Exact) Record(call Call) {
	if e.times == nil {
		e.times = make(map[string][]int64)
	}
	for _, c := range call.Checks {
		for range c.N {
			e.times[string(c.Key)] = append(e.times[string(c.Key)], call.TS)
		}
	}
}

// Held is the number of events of a key in the window that ends at ts.
func (e *Exact) Held(key []byte, window, ts int64) int64 {
	times := e.times[string(key)]
	from, _ := slices.BinarySearch(times, ts-window+1)
	return int64(len(times) - from)
}
