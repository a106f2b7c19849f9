package config

import (
	"errors"
	"fmt"
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
