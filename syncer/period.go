package syncer

import (
	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// sumPeriod returns the sum of the period around a moment, with events later than the moment, and
// the uncertainty of its edges. window is the length of the period up to the moment, and end is
// where the next one begins. sumPeriod returns false if the period's start is out of reach.
func sumPeriod(p *twotier.Period, v leaparray.View, at int64) (window, end, sum, blur int64,
	ok bool) {
	start, end := p.Around(at)
	window = at - start + 1
	if !v.Covers(window, at) {
		return 0, 0, 0, 0, false
	}
	return window, end, v.UpperBound(start, end-1), max(v.EdgeWidth(start), v.EdgeWidth(end)), true
}
