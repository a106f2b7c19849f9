package backtest

import "twotier.dev/twotier"

// begin returns the first moment of a limit's window that ends at a moment.
func begin(l *twotier.Limit, ms int64) int64 { return ms - l.WindowAt(ms) + 1 }

// refusedInPeriods is refusedAtLeast for periods: of the events that certainly lie in a period, a
// limit lets Max through.
func (h *history) refusedInPeriods(l twotier.Limit) (refused, peak int64) {
	var until, inDay, all int64 // of the current period: its end, and its events
	if h.first < len(h.segments) {
		start := begin(&l, h.segments[h.first].from)
		for i := h.firstSegmentSince(start); i < len(h.segments); i++ {
			s := h.segments[i]
			if s.from >= until {
				refused += max(0, inDay-l.Max)
				inDay, all = 0, 0
				_, until = l.Period.Around(s.from)
			}
			if s.from < start || s.to > until {
				continue // it may lie in another period
			}
			if all += s.n; i >= h.first {
				inDay, peak = inDay+s.n, max(peak, all)
			}
		}
	}
	return refused + max(0, inDay-l.Max), peak
}
