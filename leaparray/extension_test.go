package leaparray_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
)

// TestExtensionsCoverTheWindow extends ladders as an error about a window proposes.
func TestExtensionsCoverTheWindow(t *testing.T) {
	const hour = time.Hour
	for _, test := range []struct {
		ladder string
		window time.Duration
		want   string
	}{
		{"", 30 * 24 * hour, "1h x 744"},
		{"", 745 * hour, "1h x 768"},
		{"", 26 * hour, "15m x 120"},
		{"", 400 * 24 * hour, "24h x 408"},
		{"1s x 60", 10 * time.Minute, "1s x 624"},
		{"1s x 60, 1m x 60, 15m x 96", 25 * hour, "15m x 120"},
		{"100ms x 10, 7m x 60", 30 * 24 * hour, "56m x 792"},
		{"100ms x 10, 1s x 10, 2s x 10, 4s x 10, 8s x 10, 24h x 10", 20 * 24 * hour, "24h x 24"},
		{"", 20 * 366 * 24 * hour, ""},
	} {
		levels := leaparray.DefaultLevels()
		if test.ladder != "" {
			levels = levelsOf(t, test.ladder)
		}
		l := ladder(t, 5, levels...)
		level, ok := l.Extension(test.window.Milliseconds())
		if ok != (test.want != "") || ok && level.String() != test.want {
			t.Errorf("%v for %v: %v, want %s", l, test.window, level, test.want)
			continue
		}
		if last := len(levels) - 1; ok && (levels[last].Width == level.Width ||
			len(levels) == leaparray.MaxLevels) {
			levels = levels[:last]
		}
		if ok && ladder(t, 5, append(levels, level)...).Span() < test.window.Milliseconds() {
			t.Errorf("%v does not cover %v", level, test.window)
		}
	}
}

// levelsOf reads levels such as "1s x 60, 15m x 96".
func levelsOf(t *testing.T, text string) (levels []leaparray.Level) {
	t.Helper()
	for part := range strings.SplitSeq(text, ", ") {
		var width string
		var l leaparray.Level
		_, err := fmt.Sscanf(part, "%s x %d", &width, &l.Count)
		if err == nil {
			l.Width, err = time.ParseDuration(width)
		}
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		levels = append(levels, l)
	}
	return levels
}
