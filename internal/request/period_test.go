package request_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/request"
)

func TestParseLimitWindow(t *testing.T) {
	for text, want := range map[string]string{"month": "month", "day.0": "day",
		"week.7@Asia/Shanghai": "week.7@Asia/Shanghai"} {
		l, wrong := request.ParseLimitWindow([]byte(text))
		if wrong != "" || l.Period == nil || l.Period.String() != want || l.Window != 0 {
			t.Errorf("%s: %+v %s", text, l, wrong)
		}
	}
	if l, wrong := request.ParseLimitWindow([]byte("2w")); l.Window != 1_209_600_000 ||
		l.Period != nil || wrong != "" {
		t.Errorf("2w: %+v %s", l, wrong)
	}
	for text, want := range map[string]string{
		"":                      `want a duration such as "90s"`,
		"days":                  `or a calendar window such as "day"`,
		"day@Nowhere":           `zone: unknown time zone "Nowhere"`,
		"month.32":              `anchor: 32, want 1 to 31 for a month, got "month.32"`,
		"1mo":                   `the calendar window "month"`,
		strings.Repeat("x", 65): "longer than 64 characters",
	} {
		if l, wrong := request.ParseLimitWindow([]byte(text)); !strings.Contains(wrong, want) {
			t.Errorf("%q: %+v %s, want %s", text, l, wrong, want)
		}
	}
}
