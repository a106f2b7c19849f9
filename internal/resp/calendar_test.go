package resp_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/resp"
)

// TestCalendarWindows sends commands at 22:13:20 UTC on 14 November 2023, which is the 15th in
// Shanghai.
func TestCalendarWindows(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	for _, test := range [][2]string{
		{"TT.ACQUIRE a TS 1699970000000 LIMIT day 9", "[1 0 1 8]"},
		{"TT.ACQUIRE a LIMIT day 2 LIMIT day@Asia/Shanghai 2", "[1 0 2 0 1 1]"},
		{"TT.ACQUIRE a LIMIT day 2 LIMIT 24h 9", "[0 6400000 2 0 2 7]"},
		{"TT.ACQUIRE a LIMIT day@Asia/Shanghai 2", "[1 0 2 0]"},
		{"TT.ACQUIRE a LIMIT day@Asia/Shanghai 2", "[0 64000000 2 0]"},
		{"TT.ACQUIRE a N 3 LIMIT hour 2", "[0 -1 2 0]"},
		{"TT.COUNT a day day.6@Asia/Shanghai hour", "[3 2 2]"},
		{"TT.COUNT a day BOUNDS", "[3 3 3]"},
	} {
		if got := c.do(test[0]); got != test[1] {
			t.Errorf("%s: got %s, want %s", test[0], got, test[1])
		}
	}
	for command, want := range map[string]string{
		"TT.ACQUIRE a LIMIT month@Europe/Lisbon 5": "limits[0].window: month@Europe/Lisbon (up " +
			"to 745h) is longer than the namespace covers (25h); it needs `1h x 768` in namespace default",
		"TT.ACQUIRE a LIMIT 30d 5":         "it needs `1h x 744` in namespace default",
		"TT.ACQUIRE a LIMIT day@Nowhere 5": "limits[0].window: zone: unknown time zone \"Nowhere\"",
		"TT.ACQUIRE a LIMIT month.32 5":    "limits[0].window: anchor: 32, want 1 to 31",
		"TT.COUNT a 1mo":                   "window: a month has no fixed length",
	} {
		if got := c.do(command); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
	if got := c.do("TT.COUNT a 24h"); got != "[3]" {
		t.Errorf("the refused commands counted: %s", got)
	}
}
