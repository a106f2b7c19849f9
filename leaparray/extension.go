package leaparray

import (
	"fmt"
	"slices"
	"time"
)

// extensionBuckets bounds the buckets of an Extension: more cost memory without need.
const extensionBuckets = 1000

// extensionWidths are readable widths of buckets.
var extensionWidths = [...]time.Duration{time.Second, 10 * time.Second, time.Minute,
	5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// Extension returns a level that makes the ladder cover a window of so many milliseconds, with
// some buckets to spare. It follows the last level, or takes its place if it is as wide or there is
// no room for another one. Extension reports false if no ladder covers the window.
func (l *Ladder) Extension(window int64) (Level, bool) {
	last := l.levels[len(l.levels)-1].Width
	widths := append(slices.Clone(extensionWidths[:]), last)
	for times := time.Duration(2); times <= 1<<16; times *= 2 {
		widths = append(widths, times*last)
	}
	for _, width := range widths {
		// Spare buckets are a day of hours, and as many of other widths.
		const spare = 24
		if window < 1 || window > maxSpan.Milliseconds() || width < last {
			continue
		}
		level := Level{width, spare * int(window/(spare*width.Milliseconds())+1)}
		if level.Count > extensionBuckets {
			continue
		}
		if _, err := l.Extended(level); err == nil {
			return level, true
		}
	}
	return Level{}, false
}

// Extended returns the ladder with a level that Extension returned.
func (l *Ladder) Extended(level Level) (*Ladder, error) {
	levels, last := l.Levels(), len(l.levels)-1
	if levels[last].Width == level.Width || len(levels) == MaxLevels {
		levels = levels[:last]
	}
	return NewLadder(int(l.exact), append(levels, level)...)
}

// String formats the levels like "100ms x 100, 1s x 100, 15m x 96".
func (l *Ladder) String() string {
	s := ""
	for i, lv := range l.levels {
		if i > 0 {
			s += ", "
		}
		s += lv.String()
	}
	return s
}

// String formats the level like "100ms x 100".
func (l Level) String() string { return fmt.Sprintf("%s x %d", shortDuration(l.Width), l.Count) }

func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}
