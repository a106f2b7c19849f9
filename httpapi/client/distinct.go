package client

import (
	"context"
	"fmt"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
)

// DistinctRequest adds values to a key, and counts its different values.
type DistinctRequest struct {
	// Namespace and Key are as in AddRequest.
	Namespace, Key string
	// Values, up to 1,000, are texts of 1 to 1,024 bytes. Without any, the request only counts.
	Values []string
	// Limits, up to 16, bound the different values in a window: all Values are added, or none if
	// any window would have more. Rules, up to 16, are names of rules of the server that have such
	// limits. Both need Values, and no At. With neither, the default rules of the namespace judge
	// Values that have no At.
	Limits []Limit
	Rules  []string
	// Windows, up to 64, are counted as well.
	Windows []time.Duration
	// At is when the values were seen or, without Values, the end of the windows, in whole
	// milliseconds. Default: now.
	At time.Time
	// Ack is as in AddRequest.
	Ack Ack
}

// DistinctCount is the number of different values in a window.
type DistinctCount struct {
	// Window and Max are the limit's. Max is 0 in a count of Windows.
	Window time.Duration
	Max    int64
	// Rule is the name of the limit's rule, if any. Shadow marks a rule that refuses nothing.
	// Refused is set if the values were too many for the limit.
	Rule            string
	Shadow, Refused bool
	// Count is the number, and Error its relative standard error: 0 if it is not an estimate. The
	// true number is from AtLeast to AtMost, of an estimate in 95 of 100 cases.
	Count, AtLeast, AtMost int64
	Error                  float64
}

// DistinctAnswer is the answer to a DistinctRequest.
type DistinctAnswer struct {
	// Counts has one element for each limit, the request's before the rules', and then one for each
	// window.
	Counts []DistinctCount
	// Over is set if a limit has kept the values from being added. RefusedBy names the limits that
	// did: limits[0] is the first of the request, and NAME or NAME/WINDOW one of a rule.
	Over      bool
	RefusedBy []string
	// Near names the limits of rules that allow the values, and whose counts have reached the
	// rule's warning level.
	Near []string
	// RetryAfter is when the values would be allowed, in whole milliseconds from now, if no others
	// are added until then: 0 if they were, negative if they never would be or if it is unknown.
	RetryAfter time.Duration
	// RulesVersion is the version of the rules that judged, 0 if none did.
	RulesVersion int64
	Source       twotier.Source
	// Degraded is set while Redis can't be reached, or does not take the values.
	Degraded bool
}

// distinctCounts reads the numbers of different values for so many limits and windows of the
// request, and for its rules.
func (r *reader) distinctCounts(v *fastjson.Value, asked, rules int) (counts []DistinctCount) {
	for _, n := range r.list(v, "counts", asked+max(rules, mostDefaults)*mostOfRule) {
		c := DistinctCount{
			Max: r.integer(n, "max"), Rule: string(r.text(n, "rule")),
			Shadow: r.boolean(n, "shadow"), Refused: r.boolean(n, "refused"),
			Count: r.integer(n, "count"), AtLeast: r.integer(n, "at_least"),
			AtMost: r.integer(n, "at_most"),
			Error:  memberOf(r, n, "error", (*fastjson.Value).Float64),
		}
		c.Window, _ = r.window(n)
		counts = append(counts, c)
	}
	return counts
}

// values reads the counts of the values of a check, if it has any.
func (r *reader) values(v *fastjson.Value, asked *Check) []DistinctCount {
	if v = v.Get("values"); v == nil || len(asked.Values) == 0 {
		return nil
	}
	return r.distinctCounts(v, len(asked.ValueLimits), len(asked.Rules))
}

// read reads the answer to a distinct.
func (a *DistinctAnswer) read(v *fastjson.Value, of *DistinctRequest) error {
	var r reader
	rules := max(len(of.Rules), mostDefaults)
	a.Counts = r.distinctCounts(v, len(of.Limits)+len(of.Windows), rules)
	a.RefusedBy = r.texts(v, "refused_by", len(of.Limits)+rules*mostOfRule)
	a.Near = r.texts(v, "near", rules*mostOfRule)
	a.Over, a.Degraded, a.Source = r.boolean(v, "over"), r.boolean(v, "degraded"), r.source(v)
	a.RetryAfter = millis(r.integer(v, "retry_after_ms"))
	a.RulesVersion = r.integer(v, "rules_version")
	return r.finish(v, a.Source != "")
}

// Distinct adds values to a key, unless a limit forbids it, and counts different ones. A value
// counts once, so a request without an answer is sent again, and may be repeated after any error.
func (c *Client) Distinct(ctx context.Context, r DistinctRequest) (DistinctAnswer, error) {
	res := c.run(ctx, &Op{Distinct: &r}, 0)
	return orZero(res.Distinct), res.Err
}

func (r *DistinctRequest) append(b []byte) ([]byte, error) {
	if len(r.Values) == 0 && len(r.Limits)+len(r.Rules) > 0 {
		return b, fmt.Errorf("%w: Limits and Rules need Values", ErrInvalid)
	}
	b, err := appendKey(append(b, `{"op":"distinct"`...), r.Namespace, r.Key, 0, r.Limits)
	if err != nil {
		return b, err
	}
	if b, err = appendRules(b, r.Rules); err != nil {
		return b, err
	}
	if b, err = appendValues(b, r.Values); err != nil {
		return b, err
	}
	if len(r.Values) > 0 {
		b = appendWhen(b, "ts", r.At, r.Ack)
	} else {
		b = appendWhen(b, "at", r.At, AckDefault)
	}
	if len(r.Windows) > 0 {
		b = append(appendWindows(append(b, `,"window":[`...), r.Windows), ']')
	}
	return append(b, '}'), nil
}
