package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// FewBuckets is the number of buckets below which a window is coarse. An event counts until its
// bucket has left the window, at most one bucket too long: of a window of n buckets, steady traffic
// above n/(n+1) of the limit is refused.
const FewBuckets = 10

// oldestBucketWidth returns the width of the bucket that holds the oldest events of a window, once
// they no longer keep their millisecond. It returns 0 for windows that no level covers; those are
// refused elsewhere.
func oldestBucketWidth(ladder *leaparray.Ladder, window int64) (width int64) {
	for level, l := range ladder.Levels() {
		if l.Span().Milliseconds() >= window-1 {
			return ladder.Width(level)
		}
	}
	return 0
}

// IsCoarse reports whether a limit of most events is decided by fewer than [FewBuckets] buckets in
// a namespace; "" is the default one. A limit of at most Ladder.ExactEvents events is decided by
// their milliseconds, whatever the window.
func (l Ladders) IsCoarse(namespace string, most, window int64) bool {
	ladder := l.Of(namespace)
	return most > int64(ladder.ExactEvents()) &&
		window < FewBuckets*oldestBucketWidth(ladder, window)
}

// lintCoarseWindows warns about limits on events over windows of few buckets.
func lintCoarseWindows(s *rules.Source, ladders Ladders) (list []warning.Warning) {
	seen := map[string]bool{}
	for _, l := range s.Limits {
		if l.Distinct || l.Max == 0 || !ladders.IsCoarse(l.Namespace, l.Max, l.Longest()) ||
			seen[l.At] {
			continue
		}
		seen[l.At] = true
		width := oldestBucketWidth(ladders.Of(l.Namespace), l.Longest())
		list = append(list, warning.Warning{Code: warning.CoarseWindow, At: l.At,
			Reason: fmt.Sprintf("%s is decided by buckets of %s: an event counts for up to %[2]s "+
				"too long, so steady traffic above %s of the limit is refused in part",
				formatLimit(l.RuleLimit),
				twotier.FormatMillis(width), steadyShare(l.Longest(), width)),
			Instead: remedy(ladders, l, width)})
	}
	return list
}

// steadyShare returns the part of a limit above which steady traffic is refused.
func steadyShare(window, width int64) string {
	return fmt.Sprintf("%d %%", 100*window/(window+width))
}

// remedy returns the settings or the window to use in place of a coarse one.
func remedy(ladders Ladders, l rules.PlacedLimit, width int64) string {
	namespace, ladder := cmp.Or(l.Namespace, config.DefaultNamespace), ladders.Of(l.Namespace)
	var ways []string
	if l.Max <= leaparray.MaxExact {
		ways = append(ways, fmt.Sprintf("namespaces: {%s: {exact: %d}}", namespace, l.Max))
	} else if finer := finerLadder(ladder, l.Longest()); finer != nil {
		ways = append(ways, fmt.Sprintf("namespaces: {%s: {ladder: [%s]}}", namespace, finer))
	}
	if FewBuckets*width <= ladder.Span() {
		ways = append(ways, "a window of at least "+twotier.FormatMillis(FewBuckets*width))
	}
	if len(ways) == 0 {
		return fmt.Sprintf("a ladder of namespace %s with finer buckets", namespace)
	}
	return strings.Join(ways, ", or ")
}

// widths are readable bucket widths, widest first.
var widths = [...]time.Duration{24 * time.Hour, 12 * time.Hour, 6 * time.Hour, 2 * time.Hour,
	time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute,
	2 * time.Minute,
	time.Minute, 30 * time.Second, 15 * time.Second, 10 * time.Second, 5 * time.Second,
	2 * time.Second, time.Second, 500 * time.Millisecond, 200 * time.Millisecond,
	100 * time.Millisecond, 50 * time.Millisecond}

// finerLadder returns a ladder with one more level that gives the window ten buckets or more, or
// nil if there can be none. It leaves out the levels that the new one covers.
func finerLadder(ladder *leaparray.Ladder, window int64) *leaparray.Ladder {
	most := time.Duration(window/FewBuckets) * time.Millisecond
	for _, width := range widths {
		if width <= most {
			if finer := withLevel(ladder, width, window); finer != nil {
				return finer
			}
		}
	}
	for _, l := range ladder.Levels() { // parts of its widths fit in if nothing else does
		for parts := time.Duration(1); l.Width/parts >= leaparray.MinWidth; parts++ {
			if width := l.Width / parts; width <= most {
				if finer := withLevel(ladder, width, window); finer != nil {
					return finer
				}
			}
		}
	}
	return nil
}

// withLevel returns a ladder with a level of this width that covers a window, or nil if the width
// does not fit in.
func withLevel(ladder *leaparray.Ladder, width time.Duration, window int64) *leaparray.Ladder {
	span := time.Duration(window) * time.Millisecond
	level := leaparray.Level{Width: width, Count: int((span + width - 1) / width)}
	levels := slices.DeleteFunc(ladder.Levels(), func(l leaparray.Level) bool {
		return l.Width == width || l.Width > width && l.Span() <= level.Span()
	})
	at := slices.IndexFunc(levels, func(l leaparray.Level) bool { return l.Width > width })
	if at < 0 {
		at = len(levels)
	}
	finer, err := leaparray.NewLadder(ladder.ExactEvents(), slices.Insert(levels, at, level)...)
	if err != nil {
		return nil
	}
	return finer
}
