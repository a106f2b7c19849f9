package client

import (
	"bytes"
	"errors"
	"time"

	"github.com/valyala/fastjson"
)

// errAnswer says that an answer is not one a twotier server gives.
var errAnswer = errors.New("the answer is malformed")

// parse parses JSON of at most this many values. The parser allocates some hundred bytes for each
// value, even for one of two bytes, so bounding the length of an answer is not enough.
func parse(p *fastjson.Parser, b []byte, most int) (*fastjson.Value, error) {
	if len(b) > most { // a value follows a comma or is the first of its list or object
		values := 1
		for _, before := range []string{",", "[", "{"} {
			values += bytes.Count(b, []byte(before))
		}
		if values > most {
			return nil, errAnswer
		}
	}
	return p.ParseBytes(b)
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

func (r *reader) integer(v *fastjson.Value, name string) int64 {
	if v = v.Get(name); v == nil {
		return 0
	}
	n, err := v.Int64()
	return check(r, n, err)
}

func (r *reader) unsigned(v *fastjson.Value, name string) uint64 {
	if v = v.Get(name); v == nil {
		return 0
	}
	n, err := v.Uint64()
	return check(r, n, err)
}

func (r *reader) boolean(v *fastjson.Value, name string) bool {
	if v = v.Get(name); v == nil {
		return false
	}
	b, err := v.Bool()
	return check(r, b, err)
}

// text returns a view that is valid as long as the value is.
func (r *reader) text(v *fastjson.Value, name string) []byte {
	if v = v.Get(name); v == nil {
		return nil
	}
	b, err := v.StringBytes()
	return check(r, b, err)
}

// list returns the elements of a list of at most this many. If there are fewer than expected, the
// caller refuses the answer.
func (r *reader) list(v *fastjson.Value, name string, most int) []*fastjson.Value {
	if v = v.Get(name); v == nil {
		return nil
	}
	list, err := v.Array()
	check(r, list, err)
	if len(list) > most {
		r.bad = true
		return nil
	}
	return list
}

// booleans returns the values of an object by name, or nil if it is missing. It must not have more
// than most.
func (r *reader) booleans(v *fastjson.Value, name string, most int) map[string]bool {
	if v = v.Get(name); v == nil {
		return nil
	}
	object, err := v.Object()
	if r.bad = r.bad || err != nil || object.Len() > most; r.bad {
		return nil
	}
	all := make(map[string]bool, object.Len())
	object.Visit(func(key []byte, v *fastjson.Value) {
		b, err := v.Bool()
		all[string(key)] = check(r, b, err)
	})
	return all
}

// source reads where an answer came from. It only allocates for sources that this version does not
// know.
func (r *reader) source(v *fastjson.Value) Source {
	text := r.text(v, "source")
	for _, known := range [...]Source{
		SourceMemory, SourceOwner, SourceShared, SourceNear, SourceRedis, SourceFallback,
		SourceDegraded,
	} {
		if string(text) == string(known) {
			return known
		}
	}
	return Source(text)
}

// outcome finishes reading an answer. It returns the error in the answer, or errAnswer if the
// answer is malformed or incomplete.
func (r *reader) outcome(v *fastjson.Value, complete bool) error {
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
	a.Counts = r.counts(v, len(of.Limits))
	a.Over, a.Degraded, a.Source = r.boolean(v, "over"), r.boolean(v, "degraded"), r.source(v)
	if err := r.outcome(v, a.Source != "" && len(a.Counts) == len(of.Limits)); err != nil {
		return err
	}
	for i := range a.Counts {
		a.Counts[i].Window = of.Limits[i].Window
	}
	return nil
}

// read reads the answer to a count.
func (a *CountAnswer) read(v *fastjson.Value, of *CountRequest) error {
	var r reader
	a.Counts = r.counts(v, len(of.Windows))
	a.Age = millis(r.integer(v, "age_ms"))
	a.Degraded, a.Source = r.boolean(v, "degraded"), r.source(v)
	if err := r.outcome(v, a.Source != "" && len(a.Counts) == len(of.Windows)); err != nil {
		return err
	}
	for i := range a.Counts {
		a.Counts[i].Window = of.Windows[i]
	}
	return nil
}

// read reads the answer to an acquire.
func (a *AcquireAnswer) read(v *fastjson.Value, of *AcquireRequest) error {
	var r reader
	a.Allowed, a.Degraded, a.Source = r.boolean(v, "allowed"), r.boolean(v, "degraded"), r.source(v)
	a.RetryAfter = millis(r.integer(v, "retry_after_ms"))
	a.Limits, a.Checks = r.limits(v, of.Limits), r.checks(v, of.Checks)
	complete := len(a.Checks) == len(of.Checks) && len(a.Limits) == len(of.Limits)
	return r.outcome(v, a.Source != "" && complete)
}

// counts reads as many counts as were asked for.
func (r *reader) counts(v *fastjson.Value, want int) []WindowCount {
	if want == 0 {
		r.list(v, "counts", 0)
		return nil
	}
	counts := make([]WindowCount, 0, want)
	for _, c := range r.list(v, "counts", want) {
		counts = append(counts, WindowCount{
			Count: r.integer(c, "count"), Min: r.integer(c, "min"), Max: r.integer(c, "max"),
			Bucket: millis(r.integer(c, "bucket_ms")),
		})
	}
	return counts
}

// limits reads the states of the limits that were asked about.
func (r *reader) limits(v *fastjson.Value, asked []Limit) []LimitState {
	if len(asked) == 0 {
		r.list(v, "limits", 0)
		return nil
	}
	states := make([]LimitState, 0, len(asked))
	for i, l := range r.list(v, "limits", len(asked)) {
		states = append(states, LimitState{
			Window: asked[i].Window, Max: asked[i].Max, Count: r.integer(l, "count"),
			Remaining: r.integer(l, "remaining"), Refused: r.boolean(l, "refused"),
		})
	}
	return states
}

// checks reads the outcomes of the checks that were asked about.
func (r *reader) checks(v *fastjson.Value, asked []Check) (answers []CheckAnswer) {
	for i, c := range r.list(v, "checks", len(asked)) {
		a := CheckAnswer{
			Key: asked[i].Key, Allowed: r.boolean(c, "allowed"),
			Limits:     r.limits(c, asked[i].Limits),
			RetryAfter: millis(r.integer(c, "retry_after_ms")),
		}
		r.bad = r.bad || len(a.Limits) != len(asked[i].Limits)
		answers = append(answers, a)
	}
	return answers
}
