package client

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier"
)

// errAnswer is the error of an answer that no twotier server gives.
var errAnswer = errors.New("the answer is malformed")

// hasMoreValues reports whether JSON may have more than most values. A parser allocates some
// hundred bytes for each value, even for one of two bytes, so bounding the length of an answer is
// not enough.
func hasMoreValues(b []byte, most int) bool {
	if len(b) <= most { // a value follows a comma or is the first of its list or object
		return false
	}
	values := 1
	for _, before := range []string{",", "[", "{"} {
		values += bytes.Count(b, []byte(before))
	}
	return values > most
}

// millis converts milliseconds to a duration, capped at the longest one there is.
func millis(n int64) time.Duration {
	const most = int64((1<<63 - 1) / time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}

// reader reads parts of an answer. A value of the wrong type sets bad; a missing one reads as zero.
type reader struct{ bad bool }

// check records an error and returns the value that came with it.
func check[T any](r *reader, v T, err error) T {
	r.bad = r.bad || err != nil
	return v
}

// memberOf reads a member of an object with one of the methods of its value.
func memberOf[T any](r *reader, v *fastjson.Value, name string,
	read func(*fastjson.Value) (T, error)) (zero T) {
	if v = v.Get(name); v == nil {
		return zero
	}
	t, err := read(v)
	return check(r, t, err)
}

func (r *reader) integer(v *fastjson.Value, name string) int64 {
	return memberOf(r, v, name, (*fastjson.Value).Int64)
}

// moment reads a time in milliseconds, or the zero time if it is missing.
func (r *reader) moment(v *fastjson.Value, name string) (at time.Time) {
	if ms := r.integer(v, name); ms != 0 {
		at = time.UnixMilli(ms)
	}
	return at
}

func (r *reader) boolean(v *fastjson.Value, name string) bool {
	return memberOf(r, v, name, (*fastjson.Value).Bool)
}

// text returns a view that is valid as long as the value is.
func (r *reader) text(v *fastjson.Value, name string) []byte {
	return memberOf(r, v, name, (*fastjson.Value).StringBytes)
}

// texts returns copies of the elements of a list of at most this many texts, nil if it is missing.
func (r *reader) texts(v *fastjson.Value, name string, most int) (all []string) {
	for _, one := range r.list(v, name, most) {
		b, err := one.StringBytes()
		all = append(all, string(check(r, b, err)))
	}
	return all
}

// list returns the elements of a list of at most this many. If there are fewer than expected, the
// caller refuses the answer.
func (r *reader) list(v *fastjson.Value, name string, most int) []*fastjson.Value {
	list := memberOf(r, v, name, (*fastjson.Value).Array)
	if len(list) > most {
		r.bad = true
		return nil
	}
	return list
}

// source reads the origin of an answer. It only allocates for sources that this version does not
// know.
func (r *reader) source(v *fastjson.Value) twotier.Source {
	text := r.text(v, "source")
	for _, known := range [...]twotier.Source{twotier.SourceMemory, twotier.SourceOwner,
		twotier.SourceNear, twotier.SourceRedis, twotier.SourceFallback, twotier.SourceDegraded,
	} {
		if string(text) == string(known) {
			return known
		}
	}
	return twotier.Source(text)
}

// finish finishes reading an answer. It returns the error in the answer, or errAnswer if the
// answer is malformed or incomplete.
func (r *reader) finish(v *fastjson.Value, complete bool) error {
	if failed := v.Get("error"); failed != nil && !r.bad {
		return readProblem(0, failed.MarshalTo(nil))
	}
	if r.bad || !complete {
		return errAnswer
	}
	return nil
}

// read reads the answer to an add.
func (a *AddAnswer) read(v *fastjson.Value, of *AddRequest) error {
	var r reader
	a.Counts = r.counts(v, len(of.Limits), len(of.Rules))
	a.Over, a.Degraded, a.Source = r.boolean(v, "over"), r.boolean(v, "degraded"), r.source(v)
	a.At = r.moment(v, "ts")
	if err := r.finish(v, a.Source != "" && len(a.Counts) >= len(of.Limits)); err != nil {
		return err
	}
	for i := range of.Limits {
		a.Counts[i].Window, a.Counts[i].Period = of.Limits[i].Window, of.Limits[i].Period
	}
	return nil
}

// read reads the answer to a count.
func (a *CountAnswer) read(v *fastjson.Value, of *CountRequest) error {
	var r reader
	want := len(of.Windows) + len(of.Periods)
	a.Counts = r.counts(v, want, 0)
	a.Age = millis(r.integer(v, "age_ms"))
	a.Degraded, a.Source = r.boolean(v, "degraded"), r.source(v)
	if err := r.finish(v, a.Source != "" && len(a.Counts) == want); err != nil {
		return err
	}
	for i, w := range of.Windows {
		a.Counts[i].Window = w
	}
	for i, p := range of.Periods {
		a.Counts[len(of.Windows)+i].Period = p
	}
	return nil
}

// read reads the answer to an acquire.
func (a *AcquireAnswer) read(v *fastjson.Value, of *AcquireRequest) error {
	var r reader
	a.CheckAnswer, a.Checks = r.check(v, &of.Check), r.checks(v, of.Checks)
	a.Degraded, a.Source = r.boolean(v, "degraded"), r.source(v)
	a.Refusal = string(r.text(v, "id"))
	a.Hold, a.Until = string(r.text(v, "hold")), r.moment(v, "until")
	a.Bans, a.RulesVersion = r.bans(v, max(1, len(of.Checks))), r.integer(v, "rules_version")
	a.Near = r.texts(v, "near", max(1, len(of.Checks))*mostBans*mostOfRule)
	complete := len(a.Checks) == len(of.Checks) && a.isComplete(&of.Check)
	return r.finish(v, a.Source != "" && complete)
}

// mostOfRule bounds the limits of one rule in an answer, and mostDefaults the default rules of a
// namespace, which judge operations that name neither limits nor rules. Servers allow fewer limits.
const (
	mostOfRule   = 64
	mostDefaults = 16
)

// window reads a window in the spelling of a rule: a duration or a period.
func (r *reader) window(v *fastjson.Value) (window time.Duration, period string) {
	window, period, err := parseLimitWindow(string(r.text(v, "window")))
	return check(r, window, err), period
}

// parseLimitWindow reads a window or a period.
func parseLimitWindow(text string) (window time.Duration, period string, err error) {
	if text != "" && text[0] >= 'a' {
		return 0, text, nil
	}
	window, err = parseWindow(text)
	return window, "", err
}

// parseWindow reads a window in the spelling of a rule: a Go duration with optional weeks and days
// in front.
func parseWindow(text string) (d time.Duration, err error) {
	whole := time.Duration(0)
	for _, unit := range [...]struct {
		name   string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		if number, after, found := strings.Cut(text, unit.name); found {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				return 0, err
			}
			whole, text = whole+time.Duration(n)*unit.length, after
		}
	}
	d, err = time.ParseDuration("0s" + text)
	return whole + d, err
}

// counts reads the requested counts, followed by the counts of so many rules.
func (r *reader) counts(v *fastjson.Value, want, rules int) []WindowCount {
	list := r.list(v, "counts", want+rules*mostOfRule)
	if len(list) == 0 {
		return nil
	}
	counts := make([]WindowCount, len(list))
	for i, c := range list {
		counts[i] = WindowCount{
			Count: r.integer(c, "count"), Min: r.integer(c, "min"), Max: r.integer(c, "max"),
			Bucket: millis(r.integer(c, "bucket_ms")),
			Start:  r.moment(c, "start"), End: r.moment(c, "end"),
		}
		if i >= want {
			counts[i].Window, counts[i].Period = r.window(c)
			counts[i].Rule, counts[i].Shadow = string(r.text(c, "rule")), r.boolean(c, "shadow")
		}
	}
	return counts
}

// limits reads the states of the check's limits, followed by the states of its rules' limits.
func (r *reader) limits(v *fastjson.Value, asked *Check) []LimitState {
	rules := len(asked.Rules)
	if asked.hasOnlyDefaultRules() {
		rules = mostDefaults
	}
	list := r.list(v, "limits", len(asked.Limits)+1+rules*mostOfRule)
	if len(list) == 0 {
		return nil
	}
	states := make([]LimitState, len(list))
	for i, l := range list {
		s := &states[i]
		s.Count, s.Remaining = r.integer(l, "count"), r.integer(l, "remaining")
		s.Lent, s.Refused = r.integer(l, "lent"), r.boolean(l, "refused")
		s.Shadow = r.boolean(l, "shadow")
		s.Start, s.End = r.moment(l, "start"), r.moment(l, "end")
		switch {
		case i < len(asked.Limits):
			of := &asked.Limits[i]
			s.Window, s.Period, s.Max = of.Window, of.Period, of.Max
		case l.Exists("concurrent"):
			s.Concurrent, s.Max, s.Count = true, r.integer(l, "concurrent"), r.integer(l, "open")
			s.Rule = string(r.text(l, "rule"))
		default:
			s.Window, s.Period = r.window(l)
			s.Max = r.integer(l, "max")
			s.Rule = string(r.text(l, "rule"))
		}
	}
	return states
}

// mostBans bounds the bans of one check in an answer: servers judge it by no more rules.
const mostBans = 16

// bans reads the active bans for so many checks.
func (r *reader) bans(v *fastjson.Value, checks int) (bans []Ban) {
	for _, b := range r.list(v, "bans", checks*mostBans) {
		bans = append(bans, Ban{Rule: string(r.text(b, "rule")), Key: string(r.text(b, "key")),
			Until: r.moment(b, "until"), Started: r.boolean(b, "started")})
	}
	return bans
}

// checks reads the outcomes of the request's checks.
func (r *reader) checks(v *fastjson.Value, asked []Check) (answers []CheckAnswer) {
	for i, c := range r.list(v, "checks", len(asked)) {
		a := r.check(c, &asked[i])
		r.bad = r.bad || !a.isComplete(&asked[i])
		answers = append(answers, a)
	}
	return answers
}

// check reads the outcome of one check.
func (r *reader) check(v *fastjson.Value, asked *Check) CheckAnswer {
	return CheckAnswer{
		Allowed: r.boolean(v, "allowed"),
		Limits:  r.limits(v, asked), Values: r.values(v, asked),
		RetryAfter: millis(r.integer(v, "retry_after_ms")), At: r.moment(v, "ts"),
	}
}

// isComplete reports whether the answer has all that the check asks for.
func (a *CheckAnswer) isComplete(asked *Check) bool {
	return len(a.Limits) >= len(asked.Limits) && len(a.Values) >= len(asked.ValueLimits)
}
