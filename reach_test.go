package twotier_test

import (
	"testing"
	"time"

	"twotier.dev/twotier"
)

func TestFormatDuration(t *testing.T) {
	tests := map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 24 * time.Hour: "24h",
		90 * time.Minute: "1h30m",
		90 * time.Second: "1m30s", 10 * time.Second: "10s", 10 * time.Minute: "10m",
		time.Hour + time.Second: "1h0m1s",
		200 * time.Millisecond:  "200ms",
	}
	for d, want := range tests {
		if got := twotier.FormatDuration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
