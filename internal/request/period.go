package request

import (
	"errors"
	"fmt"

	"twotier.dev/twotier"
)

// parsePeriod parses the short form of a period.
func parsePeriod(text []byte) (l twotier.Limit, wrong string) {
	if len(text) > maxWindowText { // answers repeat it
		return l, notWindow(text, fmt.Sprintf("longer than %d characters", maxWindowText))
	}
	period, err := twotier.ParsePeriod(string(text))
	if err == nil {
		return twotier.Limit{Period: period}, ""
	}
	if invalid, ok := errors.AsType[*twotier.InvalidError](err); ok && invalid.Field != "window" {
		return l, notWindow(text, invalid.Field+": "+invalid.Detail)
	}
	return l, notWindow(text, WantLimitWindow)
}
