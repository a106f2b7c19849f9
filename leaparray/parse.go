package leaparray

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String formats the levels like "100ms x 100, 1s x 100, 15m x 96".
func (l *Ladder) String() string {
	s := ""
	for i, lv := range l.levels {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s x %d", shortDuration(lv.Width), lv.Count)
	}
	return s
}

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

// ParseLevels is the inverse of [Ladder.String]. The error wraps ErrLadder.
func ParseLevels(text string) (levels []Level, err error) {
	for part := range strings.SplitSeq(text, ", ") {
		width, count, _ := strings.Cut(part, " x ")
		w, err := time.ParseDuration(width)
		n, err2 := strconv.Atoi(count)
		if err != nil || err2 != nil {
			return nil, fmt.Errorf("%w: %q is not WIDTH x COUNT, such as 1s x 60", ErrLadder, part)
		}
		levels = append(levels, Level{Width: w, Count: n})
	}
	return levels, nil
}
