package request_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/request"
)

func TestParseWindow(t *testing.T) {
	good := map[string]int64{
		"1ms": 1, "90s": 90_000, "1m": 60_000, "37m": 2_220_000, "24h": 86_400_000,
		"1d": 86_400_000, "2w": 1_209_600_000, "1w2d3h": 788_400_000, "1.5h": 5_400_000,
		"1d2h3m4s": 93_784_000, "1000us": 1, "1000000ns": 1, "0.001s": 1, ".5s": 500, "5.s": 5000,
		"106751d": 9223286400000,
		"1s500ms": 1500, "0.1s": 100, "2.30s": 2300,
	}
	for text, want := range good {
		if got, wrong := request.ParseWindow([]byte(text)); got != want || wrong != "" {
			t.Errorf("%s: got %d %q, want %d", text, got, wrong, want)
		}
	}
	for _, text := range []string{"", "1", "s", "1x", "-1m", "+1m", "1m ", "w", "1mo", "day",
		".s", "1ns",
		"0.5ms", "99999999999999999999d", "106751d24h", "15251w", "1m\"", "0.0001s",
		strings.Repeat("0", 63) + "1m"} {
		if got, wrong := request.ParseWindow([]byte(text)); wrong == "" {
			t.Errorf("%q: accepted as %d", text, got)
		}
	}
}
