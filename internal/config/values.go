package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// leastMemory is enough for a few hundred keys. A smaller value is probably a mistake in the unit.
const leastMemory = 64 << 10

func parseMemory(text string) (int64, error) {
	n, err := ParseSize(text)
	if err == nil && n < leastMemory {
		err = fmt.Errorf("%s is too small, want at least 64KiB", text)
	}
	return n, err
}

// parsePositive reads a duration of at least 1ms.
func parsePositive(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d < time.Millisecond {
		err = fmt.Errorf("%s is too short, want at least 1ms", text)
	}
	return d, err
}

// parseIntegerWithin returns a function that reads a number within bounds. want describes it in
// errors.
func parseIntegerWithin(least, most int, want string) func(text string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not %s", text, want)
		}
		return n, nil
	}
}

func parseSeed(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number from 0 to 2^64-1", text)
	}
	return &n, nil
}

func parseBool(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return b, nil
}

// CheckName accepts the names of nodes, tokens and namespaces: up to 64 letters, digits, dots,
// dashes and underscores.
func CheckName(text string) error {
	if text == "" {
		return errors.New("the name is empty")
	}
	return checkName(text)
}

// checkName accepts the same names as CheckName, and the empty name, which asks the node to choose
// one.
func checkName(text string) error {
	if len(text) > 64 || !isWord(text) {
		return fmt.Errorf("%q is not up to 64 letters, digits, dots, dashes and underscores", text)
	}
	return nil
}

// checkPrefix accepts the first part of all keys in Redis.
func checkPrefix(text string) error {
	if len(text) < 1 || len(text) > 32 || !isWord(text) {
		return fmt.Errorf("%q is not 1 to 32 letters, digits, dots, dashes and underscores", text)
	}
	return nil
}

// isWord reports whether text consists of ASCII letters, digits, dots, dashes and underscores.
func isWord(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-", r))
	})
}

const day = 24 * time.Hour

// ErrMonths refuses a number of months as a duration.
var ErrMonths = errors.New("a month has no fixed length; want days, such as 30d, or in a limit " +
	"the window month")

// ParseDuration reads a Go duration, optionally with weeks and days in front: 200ms, 90s, 24h, 7d,
// 2w, 1d2h3m4s. A negative duration is an error. A number of months is [ErrMonths].
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration, such as 200ms, 90s, 24h or 1d12h", text)
	if strings.Contains(text, "mo") {
		bad = fmt.Errorf("%q: %w", text, ErrMonths)
	}
	total, rest := time.Duration(0), text
	for _, unit := range [...]struct {
		name   string
		length time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		number, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return 0, bad
		}
		if n > uint64((math.MaxInt64-total)/unit.length) {
			return 0, fmt.Errorf("%q is longer than 292 years", text)
		}
		total, rest = total+time.Duration(n)*unit.length, after
	}
	if rest == "" && text != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest[:1], "+-") {
		return 0, bad
	}
	if d > math.MaxInt64-total {
		return 0, fmt.Errorf("%q is longer than 292 years", text)
	}
	return total + d, nil
}

// ParseSize reads a number of bytes: 1GiB (1024 based), 100MB (1000 based), 1.5GiB or 1048576, in
// any case.
func ParseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "BKMGTIbkmgti")
	unit, ok := sizeUnit(strings.ToLower(strings.TrimPrefix(text, number)))
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || math.IsNaN(n) || n < 0 {
		return 0, fmt.Errorf("%q is not a size, such as 1GiB, 512MiB or 100MB", text)
	}
	if n*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is more memory than any machine has", text)
	}
	return int64(n * unit), nil
}

func sizeUnit(text string) (float64, bool) {
	if text == "" || text == "b" {
		return 1, true
	}
	power := strings.IndexByte("kmgt", text[0]) + 1
	switch {
	case power == 0:
		return 0, false
	case text[1:] == "b":
		return math.Pow(1000, float64(power)), true
	case text[1:] == "ib":
		return math.Pow(1024, float64(power)), true
	}
	return 0, false
}
