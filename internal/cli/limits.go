package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
)

// limit is one limit, as in a request.
type limit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
	// Concurrent, if positive, limits how many holds are open, in place of the others.
	Concurrent int64 `json:"-"`
}

// MarshalJSON spells the limit as in a request.
func (l limit) MarshalJSON() ([]byte, error) {
	if l.Concurrent > 0 {
		return json.Marshal(map[string]int64{"concurrent": l.Concurrent})
	}
	type plain limit
	return json.Marshal(plain(l))
}

// limitsVar adds a flag with limits, which may be repeated.
func limitsVar(fs *pflag.FlagSet, to *[]limit, help string) {
	fs.Func("limit", help, func(text string) error { return addLimits(to, text) })
}

// addLimits adds limits such as 15/1m or 1m=15, separated by commas.
func addLimits(to *[]limit, text string) error {
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseLimit(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*to = append(*to, one)
	}
	return nil
}

// rulesVar adds a flag with names of rules, separated by commas, which may be repeated.
func rulesVar(fs *pflag.FlagSet, to *[]string, help string) {
	fs.Func("rule", help, func(text string) error {
		*to = append(*to, strings.Split(text, ",")...)
		return nil
	})
}

func parseLimit(text string) (limit, error) {
	most, window, ok := strings.Cut(text, "/")
	if !ok {
		window, most, ok = strings.Cut(text, "=")
	}
	n, err := strconv.ParseInt(most, 10, 64)
	if !ok || err != nil || n < 0 {
		return limit{}, fmt.Errorf("%q is not MAX/WINDOW, such as 15/1m", text)
	}
	return limit{Window: window, Max: n}, checkLimitWindow(window)
}

// checkLimitWindow checks the window of a limit or of a count, which may be a calendar period.
func checkLimitWindow(text string) error {
	if text == "" || text[0] < 'a' {
		return checkWindow(text)
	}
	if _, err := twotier.ParsePeriod(text); err != nil {
		return fmt.Errorf("%q is not a window, such as 90s, 24h, day or month@Europe/Lisbon: %w",
			text, err)
	}
	return nil
}

// checkWindow checks a window that can't be a calendar period.
func checkWindow(text string) error {
	d, err := config.ParseDuration(text)
	switch {
	case err == nil && d > 0:
		return nil
	case errors.Is(err, config.ErrMonths) && text[0] < 'a':
		return err
	}
	const want = "is not a window, such as 90s, 1m, 24h or 1d12h"
	if _, err := twotier.ParsePeriod(text); err == nil {
		return fmt.Errorf("%q %s; calendar windows are for limits and counts of events", text, want)
	}
	return fmt.Errorf("%q %s", text, want)
}
