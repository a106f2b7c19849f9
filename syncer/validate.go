package syncer

import (
	"fmt"
	"math"
	"time"

	"twotier.dev/twotier/leaparray"
)

// Validate refuses an operation that a ladder can't answer, before anything is done with it, and
// returns the time it is about. ladder returns the ladder of a namespace; now is in unix
// milliseconds. The error is an *InvalidError.
func Validate(op *Op, ladder func(ns []byte) *leaparray.Ladder, now int64) (ts int64, err error) {
	ts = now
	for i := range op.Checks {
		check := &op.Checks[i]
		l := ladder(check.NS)
		if ts, err = moment(op, l, now); err != nil {
			return 0, err
		}
		pos := i
		if len(op.Checks) == 1 {
			pos = -1
		}
		for j := range check.Limits {
			if w := check.Limits[j].Window; w < 1 || w > l.Span() {
				return 0, &InvalidError{pos, j, "window", fmt.Sprintf(
					"%v is longer than the namespace covers (%v)", duration(w), duration(l.Span()))}
			}
		}
	}
	return ts, nil
}

// moment returns the time of an operation.
func moment(op *Op, l *leaparray.Ladder, now int64) (int64, error) {
	if op.TS == 0 {
		return now, nil
	}
	if ahead := leaparray.MaxAhead.Milliseconds(); op.TS > now+ahead {
		return 0, &InvalidError{-1, -1, op.timeField(), fmt.Sprintf(
			"%d is %d ms in the future (it is %d now), want at most %d ms", op.TS, op.TS-now,
			now, ahead)}
	}
	if op.TS <= now-l.Span() || op.TS < 0 {
		return 0, &InvalidError{-1, -1, op.timeField(), fmt.Sprintf(
			"%d is %v ago, farther back than the namespace covers (%v)", op.TS, duration(now-op.TS),
			duration(l.Span()))}
	}
	return op.TS, nil
}

// timeField returns the name of the operation's time in the HTTP API.
func (op *Op) timeField() string {
	if op.Kind == Count {
		return "at"
	}
	return "ts"
}

// OutOfReach is the error for a window that ends at ts and begins before what the ladder keeps.
func OutOfReach(op *Op, l *leaparray.Ladder, window, ts, now int64) error {
	return &InvalidError{-1, -1, op.timeField(),
		fmt.Sprintf("a window of %v that ends %v ago begins before what the namespace keeps (%v)",
			duration(window), duration(now-ts), duration(l.Span()))}
}

// duration formats milliseconds for people, as Go does but without trailing zero units.
func duration(ms int64) string {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return fmt.Sprintf("%d ms", ms)
	}
	s := (time.Duration(ms) * time.Millisecond).String()
	if n := len(s) - len("m0s"); n > 0 && s[n:] == "m0s" {
		s = s[:n+1]
		if n := len(s) - len("h0m"); n > 0 && s[n:] == "h0m" {
			s = s[:n+1]
		}
	}
	return s
}
