package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"twotier.dev/twotier/internal/redisurl"
)

// leastMemory is enough for a few hundred keys. A smaller value is probably a mistake in the unit.
const leastMemory = 64 << 10

func setMemory(to *int64, text string) (err error) {
	if *to, err = ParseSize(text); err != nil {
		return err
	}
	if *to < leastMemory {
		return fmt.Errorf("%s is too small, want at least 64KiB", text)
	}
	return nil
}

func setPartitions(to *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<16 {
		return fmt.Errorf("%q is not a number from 1 to 65536", text)
	}
	*to = n
	return nil
}

func setSeed(to **uint64, text string) error {
	if *to = nil; text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number from 0 to 2^64-1", text)
	}
	*to = &n
	return nil
}

func setRate(to *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number of operations a second, 0 or more", text)
	}
	*to = n
	return nil
}

func setCount(to *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number, 0 or more", text)
	}
	*to = n
	return nil
}

func setReplicas(to *int, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of replicas, 1 or more", text)
	}
	*to = n
	return nil
}

func setBool(to *bool, text string) error {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	*to = b
	return nil
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
	const more = "._-"
	ok := len(text) <= 64
	for _, r := range text {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune(more, r))
	}
	if !ok {
		return fmt.Errorf("%q is not up to 64 letters, digits, dots, dashes and underscores", text)
	}
	return nil
}

func checkRedis(text string) error {
	if text == "" {
		return nil
	}
	_, err := redisurl.Parse(text)
	return err
}
