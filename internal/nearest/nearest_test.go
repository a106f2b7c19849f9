package nearest_test

import (
	"testing"

	"twotier.dev/twotier/internal/nearest"
)

func TestNearest(t *testing.T) {
	tests := map[string]string{
		"serve": "serve", "srve": "serve", "servre": "serve", "ad": "add", "benhc": "bench",
		"ser": "serve",
		"x":   "", "": "", "quit": "", "zz": "",
	}
	for name, want := range tests {
		if got := nearest.Of(name, []string{"serve", "add", "bench", "top"}); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
