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

// AcquireAll decides by the true windows.
func (e *Exact) AcquireAll(_ context.Context, checks []Check, ts int64) (bool, error) {
	for _, c := range checks {
		for _, l := range c.Limits {
			if e.Held(c.Key, l.Window, ts)+c.N > l.Max {
				return false, nil
			}
		}
	}
	e.Record(checks, ts)
	return true, nil
}

// Record counts the events of checks at the time ts, whatever the rules say.
func (e *Exact) Record(checks []Check, ts int64) {
	if e.times == nil {
		e.times = make(map[string][]int64)
	}
	for _, c := range checks {
		for range c.N {
			e.times[c.Key] = append(e.times[c.Key], ts)
		}
	}
}

// Held is the number of events of a key in the window that ends at ts.
func (e *Exact) Held(key string, window, ts int64) int64 {
	times := e.times[key]
	from, _ := slices.BinarySearch(times, ts-window+1)
	return int64(len(times) - from)
}
