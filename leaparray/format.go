package leaparray

import (
	"fmt"
	"time"
)

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
