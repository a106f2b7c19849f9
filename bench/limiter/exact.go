package limiter

import (
	"context"
	"math"
	"slices"
)

// Exact is the judge: it keeps the time of every admitted event forever. Its zero value is empty
// and ready to use. It is not safe for concurrent use.
type Exact struct {
	times map[string][]int64
}

// Name returns the name in tables.
func (e *Exact) Name() string { return "exact log" }

// Decide decides with the true windows.
func (e *Exact) Decide(_ context.Context, calls []Call) (int, error) {
	return oneByOne(calls, func(c Call) (bool, error) {
		if e.Excess(c, 0) > 0 {
			return false, nil
		}
		e.Record(c)
		return true, nil
	})
}

// Excess returns the largest excess over a rule of a call if the call were admitted, with windows
// that are longer by a number of sub-windows.
func (e *Exact) Excess(call Call, widths int64) int64 {
	most := int64(math.MinInt64)
	for _, c := range call.Checks {
		for _, l := range c.Limits {
			window := l.Window + widths*Width(l.Window)
			most = max(most, e.Held(c.Key, window, call.TS)+c.N-l.Max)
		}
	}
	return most
}

// Record counts the events of a call, whatever the rules.
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

// Held returns the number of events of a key in the window that ends at ts.
func (e *Exact) Held(key []byte, window, ts int64) int64 {
	times := e.times[string(key)]
	from, _ := slices.BinarySearch(times, ts-window+1)
	return int64(len(times) - from)
}
