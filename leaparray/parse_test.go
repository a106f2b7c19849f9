package leaparray_test

import (
	"errors"
	"testing"

	"twotier.dev/twotier/leaparray"
)

func TestParseLadderReadsWhatStringWrites(t *testing.T) {
	for _, want := range []string{"1s x 60, 1m x 60, 15m x 96", "50ms x 1",
		"250ms x 8, 3s x 4, 2h x 9"} {
		l, err := leaparray.ParseLadder(want)
		if err != nil || l.String() != want {
			t.Errorf("%s: %v, %v", want, l, err)
		}
	}
	for _, bad := range []string{"", "1s", "1s x", "x 60", "1s x 60,1m x 60", "1s x 60, ",
		"1m x 60, 1s x 60", "1s x 0"} {
		if _, err := leaparray.ParseLadder(bad); !errors.Is(err, leaparray.ErrLadder) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
