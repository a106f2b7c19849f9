package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

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

// limits is a flag that may be repeated, or have several values separated by commas.
type limits []limit

// String returns the default that the help shows: none.
func (l *limits) String() string { return "" }

// Type returns the name of the flag's value in the help.
func (l *limits) Type() string { return "MAX/WINDOW" }

// Set adds limits such as 15/1m or 1m=15, separated by commas.
func (l *limits) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseLimit(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
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

// check is one key with its limits, as in a request. N is nil if the request counts no events.
type check struct {
	NS     string    `json:"ns,omitempty"`
	Key    string    `json:"key"`
	N      *int64    `json:"n,omitempty"`
	Limits limits    `json:"limits,omitempty"`
	Rules  ruleNames `json:"rules,omitempty"`
}

// checks is a flag that may be repeated.
type checks []check

// String returns the default that the help shows: none.
func (c *checks) String() string { return "" }

// Type returns the name of the flag's value in the help.
func (c *checks) Type() string { return "KEY:MAX/WINDOW,..." }

// Set adds a check such as user:7:15/1m,50/24h. The key ends at the last colon, so it may contain
// colons.
func (c *checks) Set(text string) error {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return fmt.Errorf("%q is not KEY:MAX/WINDOW,..., such as alice:15/1m,50/24h", text)
	}
	one := check{Key: text[:at]}
	if err := one.Limits.Set(text[at+1:]); err != nil {
		return err
	}
	*c = append(*c, one)
	return nil
}

// ruleNames is a flag that may be repeated.
type ruleNames []string

// String returns the default that the help shows: none.
func (n *ruleNames) String() string { return "" }

// Type returns the name of the flag's value in the help.
func (n *ruleNames) Type() string { return "NAME" }

// Set adds names, separated by commas.
func (n *ruleNames) Set(text string) error {
	*n = append(*n, strings.Split(text, ",")...)
	return nil
}
