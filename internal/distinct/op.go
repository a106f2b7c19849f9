package distinct

import (
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// Bounds of one operation.
const (
	// MaxValues bounds the values of an operation.
	MaxValues = 1000
	// MaxValueBytes bounds one value.
	MaxValueBytes = 1024
	// MaxLimits bounds the limits of an operation, including the limits of rules.
	MaxLimits = 64
	// WantNoTS is the reason for refusing limits together with a TS.
	WantNoTS = "limits and rules are about the present; want them without ts"
)

// Op adds values to a key, or only counts its values.
type Op struct {
	// NS and Key name the key, as in a twotier.Check.
	NS, Key []byte
	// Hashes are the hashes of the values to add, see [Engine.Hash]; none in a query.
	Hashes []uint64
	// TS is when the values were seen, or the end of the windows of a query, in unix milliseconds;
	// 0 means now.
	TS int64
	// Ack is the acknowledgement that adding values waits for: AckMemory or AckStore.
	Ack twotier.Ack
	// Limits are checked first: values are added only if no window would then have more than Max
	// different ones. Shadow lists the positions of limits that are checked but forbid nothing.
	// Windows, in milliseconds, are counted as well.
	Limits  []twotier.Limit
	Shadow  []int
	Windows []int64
}

// Count is the number of different values in a window.
type Count struct {
	// Window is its length in milliseconds.
	Window int64
	leaparray.ValueCount
}

// Result is the outcome of an [Op].
type Result struct {
	// Allowed is false if a limit kept the values from being added.
	Allowed bool
	// Counts holds the counts of the limits, then of the windows, after the operation.
	Counts []Count
	// Over lists the positions of the limits that the values exceed, including shadow limits, which
	// forbid nothing.
	Over []int
	// RetryAfter is the time in milliseconds until the values would be allowed if nothing else is
	// added; -1 if they never would be, or the time is unknown. 0 if they were allowed.
	RetryAfter int64
	// Source is where the answer came from.
	Source twotier.Source
	// Degraded is set if the answer is from memory alone because the store can't be reached.
	Degraded bool
}

// needsPast reports whether the operation needs the key's past.
func (op *Op) needsPast() bool { return len(op.Limits)+len(op.Windows) > 0 }

// validate refuses operations that the ladder can't answer, and puts the hashes in order.
func (op *Op) validate(l *leaparray.Ladder, now int64) error {
	check := twotier.Check{NS: op.NS, Key: op.Key, N: 1, Limits: op.Limits}
	q := twotier.Op{Kind: twotier.Add, TS: op.TS, Checks: []twotier.Check{check}}
	if len(op.Hashes) == 0 {
		q.Kind = twotier.Count
	}
	if err := op.refusePeriods(); err != nil {
		return err
	}
	ts, err := twotier.Validate(&q, func([]byte) *leaparray.Ladder { return l }, now)
	if err != nil {
		return err
	}
	for _, w := range op.Windows {
		if w < 1 || w > l.Span() {
			return invalid("window", fmt.Sprintf("%v is longer than the namespace covers (%v)%s",
				twotier.FormatMillis(w), twotier.FormatMillis(l.Span()),
				twotier.ExtensionHint(l, string(op.NS), w)))
		}
		if op.TS != 0 && ts-w < now-l.Span() {
			return twotier.OutOfReach(&q, l, w, ts, now)
		}
	}
	switch {
	case len(op.Limits) > MaxLimits:
		return invalid("limits", fmt.Sprintf("want at most %d", MaxLimits))
	case len(op.Hashes) > MaxValues:
		return invalid("values", fmt.Sprintf("want at most %d", MaxValues))
	case op.TS != 0 && len(op.Limits) > 0:
		return invalid("ts", WantNoTS)
	case op.Ack > twotier.AckStore:
		return invalid("ack", `distinct values wait for "memory" or "redis"`)
	}
	if !slices.IsSorted(op.Hashes) {
		slices.Sort(op.Hashes)
	}
	op.Hashes = slices.Compact(op.Hashes)
	return nil
}

// refusePeriods refuses calendar windows: sets of values are kept for fixed lengths. The window of
// a period is 0.
func (op *Op) refusePeriods() error {
	const want = `distinct values have no calendar windows; want a duration such as "24h"`
	for i := range op.Limits {
		if op.Limits[i].Period != nil {
			return &twotier.InvalidError{Check: -1, Limit: i, Field: "window", Detail: want}
		}
	}
	if slices.Contains(op.Windows, 0) {
		return invalid("window", want)
	}
	return nil
}

func invalid(field, detail string) error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: field, Detail: detail}
}
