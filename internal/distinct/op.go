package distinct

import (
	"crypto/sha256"
	"encoding/binary"
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
	// TS is when the values were seen, or the end of the windows of a query, in unix milliseconds;
	// 0 means now.
	TS int64
	// Ack is the acknowledgement that adding values waits for.
	Ack twotier.Ack
	// Limits are checked first: values are added only if no window would then have more than Max
	// different ones. Shadow lists the positions of limits that are checked but forbid nothing.
	// Windows, in milliseconds, are counted as well. A query has no limits.
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

// Hash returns the hash of a value. All nodes agree on it. Who does not know the seed can't find
// values that collide.
func Hash(seed uint64, value []byte) uint64 {
	var short [128]byte // so that the hash of a short value needs no memory
	b := append(binary.LittleEndian.AppendUint64(short[:0], seed), value...)
	sum := sha256.Sum256(b)
	return leaparray.CleanHash(binary.LittleEndian.Uint64(sum[:8]))
}

// CheckOf returns the check of the values of a check. Its limits in shadow refuse nothing.
func CheckOf(of *twotier.Check, v *twotier.ValuesOf, seed uint64) twotier.Check {
	c := twotier.Check{Kind: twotier.ValuesCheck, Limits: slices.Clone(v.Limits)}
	c.NS, c.Key = twotier.ValuesKey(of.NS, of.Key)
	for _, value := range v.Values {
		c.Values = append(c.Values, Hash(seed, value))
	}
	slices.Sort(c.Values)
	c.Values = slices.Compact(c.Values)
	c.N = int64(len(c.Values))
	for _, i := range v.Shadow {
		c.Limits[i].Max = twotier.MaxBound
	}
	return c
}

// request returns the operation as one of a counter that has values. Its limits are those of op,
// then one for each window, which refuses nothing.
func (op *Op) request(values [][]byte) (twotier.Op, error) {
	if err := op.validate(len(values)); err != nil {
		return twotier.Op{}, err
	}
	v := twotier.ValuesOf{Values: values, Limits: slices.Clone(op.Limits), Shadow: op.Shadow}
	for _, w := range op.Windows {
		v.Limits = append(v.Limits, twotier.Limit{Window: w, Max: twotier.MaxBound})
	}
	q := twotier.Op{Kind: twotier.Count, TS: op.TS, Ack: op.Ack, Values: []twotier.ValuesOf{v},
		Checks: []twotier.Check{{NS: op.NS, Key: op.Key}}}
	switch {
	case len(values) == 0:
	case len(op.Limits) == 0:
		q.Kind = twotier.Add
	default:
		q.Kind = twotier.Acquire
	}
	return q, nil
}

// validate refuses operations that no counter can execute.
func (op *Op) validate(values int) error {
	const want = `distinct values have no calendar windows; want a duration such as "24h"`
	for i := range op.Limits {
		if op.Limits[i].Period != nil {
			return &twotier.InvalidError{Check: -1, Limit: i, Field: "window", Detail: want}
		}
	}
	switch {
	case slices.Contains(op.Windows, 0): // that of a period
		return invalid("window", want)
	case len(op.Limits) > MaxLimits:
		return invalid("limits", fmt.Sprintf("want at most %d", MaxLimits))
	case values > MaxValues:
		return invalid("values", fmt.Sprintf("want at most %d", MaxValues))
	case op.TS != 0 && len(op.Limits) > 0:
		return invalid("ts", WantNoTS)
	}
	return nil
}

func invalid(field, detail string) error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: field, Detail: detail}
}

// errCold is the error of a request that was refused without a limit.
var errCold = fmt.Errorf("%w: the store can't be asked for the key's values, and on-cold is deny",
	twotier.ErrUnavailable)

// conclude sets the result to that of the operation's request.
func (op *Op) conclude(of *twotier.Result, res *Result) error {
	*res = Result{Counts: res.Counts[:0], Over: res.Over[:0], Source: of.Source,
		Degraded: of.Degraded, Allowed: of.Allowed}
	if !res.Allowed {
		res.RetryAfter = of.RetryAfter
	}
	if len(of.Values) == 0 {
		return nil
	}
	if refused := op.addCounts(of.Values[0].Limits, res); !res.Allowed && !refused {
		return errCold
	}
	return nil
}

// addCounts adds the results of limits, and reports whether one that is not in shadow refused.
func (op *Op) addCounts(limits []twotier.LimitResult, res *Result) (refused bool) {
	for i := range limits {
		l := &limits[i]
		res.Counts = append(res.Counts, Count{l.Window,
			leaparray.ValueCount{Min: l.Lo, Count: l.Count, Max: l.Hi, Error: l.Error}})
		if l.Refused {
			res.Over = append(res.Over, i)
			refused = refused || !slices.Contains(op.Shadow, i)
		}
	}
	return refused
}

// ResultOf returns the outcome of an operation that was executed as values of an acquire.
func (op *Op) ResultOf(of *twotier.CheckResult) (res Result) {
	res.Allowed, res.RetryAfter = !of.Refused, of.RetryAfter
	op.addCounts(of.Limits, &res)
	return res
}
