package backtest

import (
	"cmp"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// day is how far back Replay goes, in milliseconds.
const day = int64(24 * time.Hour / time.Millisecond)

// Bounds are the lower and the upper bound of a number.
type Bounds struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// Now is the number of events in the window that ends now.
type Now struct {
	Count int64 `json:"count"`
	Bounds
}

// LimitOutcome is the effect of a limit on a key.
type LimitOutcome struct {
	Now Now `json:"now"`
	// Refuses reports whether the limit would refuse an acquire for one event now.
	Refuses bool `json:"refuses,omitempty"`
	// Peak is the largest number of events in any window of the last day.
	Peak Bounds `json:"peak"`
	// Refused is the number of events of the last day that the limit alone would have refused.
	Refused Bounds `json:"refused"`
}

// Outcome is the effect of a rule on a key.
type Outcome struct {
	// Refuses reports whether the rule would refuse an acquire for one event now.
	Refuses bool `json:"refuses,omitempty"`
	// From is the beginning of the first bucket of the last day that has events, in unix
	// milliseconds, or 0 if there is none. Events is the number of events since.
	From   int64 `json:"from,omitempty"`
	Events int64 `json:"events"`
	// Refused is the number of these events that the rule would have refused.
	Refused Bounds `json:"refused"`
	// Limits has one element for each limit of the rule.
	Limits []LimitOutcome `json:"limits"`
}

// Replay returns the effect of a rule with these limits on a key with this history. The present is
// the view's Now.
func Replay(v leaparray.View, limits []twotier.Limit) Outcome {
	h := newHistory(v)
	o := Outcome{Limits: make([]LimitOutcome, len(limits)),
		Events: h.sums[len(h.segments)] - h.sums[h.first]}
	if h.first < len(h.segments) {
		o.From = h.segments[h.first].from
	}
	reaches := make([]reach, len(limits))
	for i, l := range limits {
		reaches[i] = h.reach(l)
		lim := &o.Limits[i]
		lim.Now = h.countNow(l)
		lim.Refuses = lim.Now.Max >= l.Max
		lim.Refused.Min, lim.Peak.Min = h.refusedAtLeast(l)
		lim.Refused.Max = h.refusedAtMost(reaches[i : i+1])
		lim.Peak.Max = h.peakBound(l)
		o.Refuses = o.Refuses || lim.Refuses
		o.Refused.Min = max(o.Refused.Min, lim.Refused.Min)
	}
	o.Refused.Max = h.refusedAtMost(reaches)
	return o
}

// history holds the segments of a key, and their running totals.
type history struct {
	view     leaparray.View
	segments []segment
	first    int     // the first segment of the last day
	sums     []int64 // of the segments before each one
}

func newHistory(v leaparray.View) *history {
	h := &history{view: v, segments: segments(v), sums: []int64{0}}
	for i, s := range h.segments {
		h.sums = append(h.sums, h.sums[i]+s.n)
	}
	h.first = h.firstSegmentSince(v.Now - day + 1)
	return h
}

// firstSegmentSince returns the first segment that reaches to that moment or beyond.
func (h *history) firstSegmentSince(ms int64) int {
	i, _ := slices.BinarySearchFunc(h.segments, ms, func(s segment, ms int64) int {
		if s.to <= ms {
			return -1
		}
		return 1
	})
	return i
}

// countNow counts the events in the window that ends now.
func (h *history) countNow(l twotier.Limit) Now {
	if e, ok := h.view.Count(l.WindowAt(h.view.Now), h.view.Now, true); ok {
		return Now{max(0, e.Count), Bounds{max(0, e.Lo), max(0, e.Hi)}}
	}
	// The window is longer than the ladder.
	start := begin(&l, h.view.Now)
	i := h.firstSegmentSince(start)
	n := Now{Bounds: Bounds{Max: h.sums[len(h.segments)] - h.sums[i]}}
	if i < len(h.segments) && h.segments[i].from < start {
		i++
	}
	n.Min = h.sums[len(h.segments)] - h.sums[i]
	n.Count = n.Min + (n.Max-n.Min)/2
	return n
}

// peakBound returns an upper bound of the events in any window of the last day.
func (h *history) peakBound(l twotier.Limit) (most int64) {
	for i := h.first; i < len(h.segments); i++ {
		most = max(most, h.sums[i+1]-h.sums[h.firstSegmentSince(begin(&l, h.segments[i].from))])
	}
	return most
}

// reach bounds, for each segment of the last day, the segments that a decision in it looks at.
type reach struct {
	max  int64
	from []int   // the first segment that a decision may look at
	sum  []int64 // the events from there up to this segment, at most
}

// reach returns the reach of a limit. A decision looks at whole buckets, at the level of the
// window's oldest events, unless those keep their millisecond.
func (h *history) reach(l twotier.Limit) reach {
	r := reach{max: l.Max}
	width, ladder := int64(1), h.view.Ladder
	if longest := l.Longest(); l.Max > int64(ladder.ExactEvents()) || longest < ladder.Width(0) {
		width = ladder.CoarsestWidth()
		for level, spec := range ladder.Levels() {
			if spec.Span().Milliseconds() >= longest {
				width = ladder.Width(level)
				break
			}
		}
	}
	for i := h.first; i < len(h.segments); i++ {
		start := max(0, begin(&l, h.segments[i].from)) / width * width
		from := h.firstSegmentSince(start)
		r.from = append(r.from, from)
		r.sum = append(r.sum, h.sums[i+1]-h.sums[from])
	}
	return r
}

// refusedAtMost bounds from above how many events of the last day these limits together refuse.
func (h *history) refusedAtMost(limits []reach) int64 {
	n := len(h.segments) - h.first
	most := make([]int64, n+1) // of the segments before each one
	for i := range n {
		var here, since int64 // if this segment has a refusal: in it, and in all so far
		for _, l := range limits {
			if over := l.sum[i] - l.max; over > 0 {
				here = max(here, over)
				// The limit was full at the last refusal, so of the events it looked at, at least
				// max were let through, and at most the others refused.
				since = max(since, over+most[max(0, l.from[i]-h.first)])
			}
		}
		here = min(here, h.segments[h.first+i].n)
		most[i+1] = max(most[i], min(most[i]+here, since))
	}
	return most[n]
}

// refusedAtLeast bounds from below how many events of the last day a limit refuses, and how many
// its fullest window has.
func (h *history) refusedAtLeast(l twotier.Limit) (refused, peak int64) {
	if l.Period != nil {
		return h.refusedInPeriods(l)
	}
	n := len(h.segments)
	least := make([]int64, n+1) // of the segments before each one
	total := h.sums[n] - h.sums[h.first]
	counts := h.windowCounts(l)
	begins := make([]int, len(counts)) // start of the longest run that so many windows cover
	for i := range begins {
		begins[i] = h.first
	}
	for i := h.first; i < n; i++ {
		least[i+1] = least[i]
		for c, windows := range counts {
			for h.segments[i].to-h.segments[begins[c]].from > windows*l.Window && begins[c] < i {
				begins[c]++
			}
			from := begins[c]
			if h.segments[i].to-h.segments[from].from > windows*l.Window {
				continue
			}
			sum := h.sums[i+1] - h.sums[from]
			peak = max(peak, (sum+windows-1)/windows)
			if l.Max == 0 || windows <= total/l.Max {
				least[i+1] = max(least[i+1], least[from]+sum-windows*l.Max)
			}
		}
	}
	return least[n], peak
}

// windowCounts returns the numbers of windows to cover runs of segments with: a few likely to give
// a tight bound.
func (h *history) windowCounts(l twotier.Limit) (counts []int64) {
	const most = 4
	for n := range int64(most) {
		counts = append(counts, n+1)
		for level := range h.view.Ladder.Len() {
			run := (n + 1) * h.view.Ladder.Width(level)
			counts = append(counts, (run+l.Window-1)/l.Window)
		}
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// segment is a stretch of time, in unix milliseconds, in which a key had n events.
type segment struct {
	from, to int64 // from is included, to is not
	n        int64
}

// segments returns the history of a key up to the present, oldest first, without empty stretches.
// Each segment is a cell of the key. Cells that overlap, because nodes have counted the same time
// at different precision, form one segment.
func segments(v leaparray.View) (all []segment) {
	add := func(at leaparray.Stretch, n int64) bool {
		if n != 0 && at.Start <= v.Now {
			all = append(all, segment{at.Start, at.End(), n})
		}
		return true
	}
	v.Ladder.EachCell(v.A, add)
	v.Ladder.EachCell(v.B, add)
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.from, b.from) })
	kept := all[:0]
	for _, s := range all {
		if last := len(kept) - 1; last >= 0 && kept[last].to > s.from {
			kept[last].to = max(kept[last].to, s.to)
			kept[last].n += s.n
		} else {
			kept = append(kept, s)
		}
	}
	// Corrections may exceed the count; the segment is then empty.
	return slices.DeleteFunc(kept, func(s segment) bool { return s.n <= 0 })
}

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
