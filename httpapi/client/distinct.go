package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fastjson"
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
	Source       Source
	// Degraded is set while Redis can't be reached, or does not take the values.
	Degraded bool
}

// rawDistinct is the JSON form of a DistinctAnswer, some of whose fields it replaces.
type rawDistinct struct {
	DistinctAnswer
	Counts       rawCounts
	RefusedBy    []string `json:"refused_by"`
	RetryAfterMS int64    `json:"retry_after_ms"`
	RulesVersion int64    `json:"rules_version"`
}

// rawCounts is the JSON form of a list of DistinctCounts.
type rawCounts []struct {
	DistinctCount
	Window  string
	AtLeast int64 `json:"at_least"`
	AtMost  int64 `json:"at_most"`
}

// counts returns the counts, or errAnswer if they are malformed.
func (raw rawCounts) counts() (counts []DistinctCount, _ error) {
	for _, n := range raw {
		window, err := parseWindow(n.Window)
		if err != nil {
			return nil, errAnswer
		}
		one := n.DistinctCount
		one.Window, one.AtLeast, one.AtMost = window, n.AtLeast, n.AtMost
		counts = append(counts, one)
	}
	return counts, nil
}

// values reads the counts of the values of a check, if it has any.
func (r *reader) values(v *fastjson.Value, asked *Check) []DistinctCount {
	if v = v.Get("values"); v == nil || len(asked.Values) == 0 {
		return nil
	}
	var raw struct{ Counts rawCounts }
	err := json.Unmarshal(v.MarshalTo(nil), &raw)
	check(r, raw, err)
	counts, err := raw.Counts.counts()
	return check(r, counts, err)
}

// answer returns the answer, or errAnswer if it is malformed.
func (raw *rawDistinct) answer() (DistinctAnswer, error) {
	a, err := raw.DistinctAnswer, error(nil)
	a.RefusedBy, a.RulesVersion, a.RetryAfter = raw.RefusedBy, raw.RulesVersion,
		millis(raw.RetryAfterMS)
	if a.Counts, err = raw.Counts.counts(); err != nil || a.Source == "" {
		return DistinctAnswer{}, errAnswer
	}
	return a, nil
}

// read reads the answer to an operation of a batch.
func (a *DistinctAnswer) read(v *fastjson.Value) error {
	var r reader
	var raw rawDistinct
	if err := r.finish(v, true); err != nil {
		return err
	}
	if json.Unmarshal(v.MarshalTo(nil), &raw) != nil {
		return errAnswer
	}
	var err error
	*a, err = raw.answer()
	return err
}

// Distinct adds values to a key, unless a limit forbids it, and counts different ones. A value
// counts once, so a request without an answer is sent again, and may be repeated after any error.
func (c *Client) Distinct(ctx context.Context, r DistinctRequest) (DistinctAnswer, error) {
	method, uri, body, err := r.encode()
	if err != nil {
		return DistinctAnswer{}, err
	}
	var raw rawDistinct
	at := c.view.Load().table.ownerUnderRules(r.Rules, r.Namespace, r.Key)
	if err = c.queryAny(ctx, at, method, uri, body, &raw); err != nil {
		if len(r.Values) > 0 && errors.Is(err, ErrUnavailable) {
			// A node that did not answer may have added them.
			err = fmt.Errorf("%w: %v", ErrUnknownOutcome, err)
		}
		return DistinctAnswer{}, err
	}
	a, err := raw.answer()
	if err != nil {
		return DistinctAnswer{}, unknownOutcomeError(len(r.Values) > 0, err)
	}
	return a, nil
}

// encode returns the request in its HTTP form.
func (r *DistinctRequest) encode() (method, uri string, body []byte, err error) {
	if len(r.Values) > 0 {
		body, err = r.append([]byte{'{'})
		return "POST", "/v1/distinct", body, err
	}
	if len(r.Limits)+len(r.Rules) > 0 {
		return "", "", nil, errNoValues
	}
	query := keyQuery(r.Namespace, r.Key)
	query.Set("window", r.windows())
	if !r.At.IsZero() {
		query.Set("at", strconv.FormatInt(r.At.UnixMilli(), 10))
	}
	return "GET", "/v1/distinct?" + query.Encode(), nil, nil
}

var errNoValues = fmt.Errorf("%w: Limits and Rules need Values", ErrInvalid)

// windows returns the windows, separated by commas.
func (r *DistinctRequest) windows() string {
	var all []string
	for _, w := range r.Windows {
		all = append(all, string(appendWindow(nil, w)))
	}
	return strings.Join(all, ",")
}

// append appends the members of the request to an open object, and closes it.
func (r *DistinctRequest) append(b []byte) ([]byte, error) {
	if len(r.Values) == 0 && len(r.Limits)+len(r.Rules) > 0 {
		return b, errNoValues
	}
	start := len(b)
	b, err := appendKey(b, r.Namespace, r.Key, 0, r.Limits)
	if err != nil {
		return b, err
	}
	b = slices.Delete(b, start, start+1) // its comma
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
	if list := r.windows(); list != "" {
		b = append(append(append(b, `,"window":"`...), list...), '"')
	}
	return append(b, '}'), nil
}
