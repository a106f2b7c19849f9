package lint

import (
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/httpapi/warning"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/leaparray"
)

// FewBuckets is the number of buckets below which a window is coarse. An event counts until the
// bucket that it is in has left the window, at most one bucket too long: of a window of n buckets,
// steady traffic above n/(n+1) of the limit is refused.
const FewBuckets = 10

// coarse reports whether a window has fewer than [FewBuckets] buckets of the level that decides it:
// the finest that covers it. width is that of these buckets. Windows that no level covers are
// refused elsewhere.
func coarse(ladder *leaparray.Ladder, window int64) (width int64, is bool) {
	for level := range ladder.Len() {
		if levels := ladder.Levels(); levels[level].Span().Milliseconds() >= window {
			width = ladder.Width(level)
			return width, window < FewBuckets*width
		}
	}
	return 0, false
}

// Coarse reports whether a window is coarse in a namespace; "" is the default one.
func (l Ladders) Coarse(namespace string, window int64) bool {
	_, is := coarse(l.Of(namespace), window)
	return is
}

// coarseWindows warns about limits on events over windows of few buckets.
func coarseWindows(s *rules.Source, ladders Ladders) (list []warning.Warning) {
	seen := map[string]bool{}
	for _, l := range s.Limits {
		ladder := ladders.Of(l.Namespace)
		width, is := coarse(ladder, l.Window)
		if l.Distinct || l.Max == 0 || !is || seen[l.At] {
			continue
		}
		seen[l.At] = true
		namespace := l.Namespace
		if namespace == "" {
			namespace = config.DefaultNamespace
		}
		list = append(list, warning.Warning{Code: warning.CoarseWindow, At: l.At,
			Reason: fmt.Sprintf("%s is decided by buckets of %s: an event counts for up to %[2]s "+
				"too long, so steady traffic above %s of the limit is refused in part",
				show(l.Limit),
				spell(width), share(l.Window, width)),
			Instead: remedy(namespace, ladder, l.Window, width)})
	}
	return list
}

// share returns the part of a limit above which steady traffic is refused.
func share(window, width int64) string {
	return fmt.Sprintf("%d %%", 100*window/(window+width))
}

// remedy returns what to write in place of a coarse window.
func remedy(namespace string, ladder *leaparray.Ladder, window, width int64) string {
	longer := ""
	if FewBuckets*width <= ladder.Span() {
		longer = "a window of at least " + spell(FewBuckets*width)
	}
	finer := finerLadder(ladder, window)
	switch {
	case finer == nil && longer == "":
		return fmt.Sprintf("a ladder of namespace %s with finer buckets", namespace)
	case finer == nil:
		return longer
	case longer != "":
		longer = ", or " + longer
	}
	return fmt.Sprintf("namespaces: {%s: {ladder: [%s]}}%s", namespace, finer, longer)
}

// widths are widths of buckets that people can read, the widest first.
var widths = [...]time.Duration{24 * time.Hour, 12 * time.Hour, 6 * time.Hour, 2 * time.Hour,
	time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute,
	2 * time.Minute,
	time.Minute, 30 * time.Second, 15 * time.Second, 10 * time.Second, 5 * time.Second,
	2 * time.Second, time.Second, 500 * time.Millisecond, 200 * time.Millisecond,
	100 * time.Millisecond, 50 * time.Millisecond}

// finerLadder returns a ladder with one more level, by which the window has ten buckets or more, or
// nil if there can be none. Levels that the new one covers are left out.
func finerLadder(ladder *leaparray.Ladder, window int64) *leaparray.Ladder {
	for _, width := range widths {
		if FewBuckets*width.Milliseconds() > window {
			continue
		}
		count := (window + width.Milliseconds() - 1) / width.Milliseconds()
		levels := append(ladder.Levels(), leaparray.Level{Width: width, Count: int(count)})
		slices.SortFunc(levels, func(a, b leaparray.Level) int { return int(a.Width - b.Width) })
		kept := levels[:0]
		for _, l := range levels {
			if len(kept) == 0 || l.Span() > kept[len(kept)-1].Span() {
				kept = append(kept, l)
			}
		}
		finer, err := leaparray.NewLadder(kept...)
		if err != nil {
			return nil
		}
		return finer
	}
	return nil
}

// spell writes milliseconds as a duration.
func spell(ms int64) string {
	return config.FormatDuration(time.Duration(ms) * time.Millisecond)
}
