package syncer

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// sumPeriod returns the sum of the period around a moment, including events later than the moment,
// and the uncertainty of its edges. window is the length of the period up to the moment. sumPeriod
// returns false if the period's start is out of reach.
func sumPeriod(p *twotier.Period, v leaparray.View, at int64) (window, sum, blur int64, ok bool) {
	start, end := p.Around(at)
	window = at - start + 1
	if !v.Covers(window, at) {
		return 0, 0, 0, false
	}
	return window, v.UpperBound(start, end-1), max(v.EdgeWidth(start), v.EdgeWidth(end)), true
}

// waitForNextPeriod returns how long n events at a moment have to wait for the next period, in
// milliseconds; -1 if no period has room for them.
func waitForNextPeriod(lr *twotier.LimitResult, at, n int64) int64 {
	if n > lr.Max {
		return -1
	}
	_, end := lr.Period.Around(at)
	return end - at
}
