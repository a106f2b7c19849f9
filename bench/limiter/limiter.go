package limiter

import (
	"context"

	"twotier.dev/twotier"
)

// All limiters share twotier's own types. The other limiters use only the key, the number of
// events, the limits and the time; the rest of the fields mean nothing to them.
type (
	// Call is one decision: whether to admit events under rules at the time TS, in unix
	// milliseconds.
	Call = twotier.Op
	// Check is one key of a call, the number of its events, and its limits.
	Check = twotier.Check
	// Limit is the most events in a window.
	Limit = twotier.Limit
)

// At returns the call that decides checks at the time ts.
func At(ts int64, checks ...Check) Call {
	return Call{Kind: twotier.Acquire, TS: ts, Checks: checks}
}

// One returns the check of one event of a key.
func One[K string | []byte](key K, limits []Limit) Check {
	return Check{Key: []byte(key), N: 1, Limits: limits}
}

// Limiter decides whether events may pass and counts the admitted ones.
type Limiter interface {
	// Name returns the name in tables.
	Name() string
	// Decide decides calls in order, as if one by one: a call is admitted if every rule of every
	// check holds, and otherwise counts nothing. It returns the number of admitted calls. Calls
	// must be in the order of their times.
	Decide(ctx context.Context, calls []Call) (admitted int, err error)
}

// Ask makes one decision.
func Ask(ctx context.Context, l Limiter, c Call) (bool, error) {
	admitted, err := l.Decide(ctx, []Call{c})
	return admitted == 1, err
}

// oneByOne implements Decide for limiters that take one decision at a time.
func oneByOne(calls []Call, decide func(Call) (bool, error)) (admitted int, err error) {
	for _, c := range calls {
		ok, err := decide(c)
		if err != nil {
			return admitted, err
		}
		if ok {
			admitted++
		}
	}
	return admitted, nil
}
