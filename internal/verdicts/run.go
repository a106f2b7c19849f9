package verdicts

import (
	"bytes"
	"time"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/syncer"
)

// Counter is what counts the verdicts of a [Run]. [Counters] are one.
type Counter interface {
	// Count counts n equal verdicts on keys of a namespace, of a rule or, if its name is empty, of
	// limits that are of none. An empty namespace is the default one.
	Count(door string, ns []byte, rule string, v rule.Verdict, n int64)
	// Took counts decisions that took this long, by what each came to as a whole.
	Took(door string, d time.Duration, n [rule.Verdicts]int64)
}

// ShadowNoter is a [Counter] that wants to know which keys rules in shadow would have refused: once
// for each check, however many rules.
type ShadowNoter interface {
	NoteShadow(ns, key []byte)
}

// RefusalNoter is a [Counter] that wants to know which limits of no rule refused.
type RefusalNoter interface {
	NoteRefused(ns []byte, limits []syncer.LimitResult)
}

// Decides reports whether the verdicts on an operation are counted: those on acquires are, unless
// they are dry runs.
func Decides(op *syncer.Op) bool { return op.Kind == syncer.Acquire && !op.DryRun }

// Run counts the verdicts of one request. Equal ones in a row are counted at once, so that a batch
// touches a shared counter once. A Run is for one goroutine, and has to end before the memory of
// the namespaces that were passed to it is used for something else.
type Run struct {
	counter   Counter
	door      string
	ns        []byte
	rule      string
	verdict   rule.Verdict
	n         int64
	decisions [rule.Verdicts]int64 // but for the last one, which is
	last      rule.Verdict
	decided   bool
	shadow    bool // a rule in shadow would have refused the present check
	recorder  Recorder
	traced    trace.Source // nil if nothing is known about traces
	span      trace.Span   // nil if none is recorded
	overall   rule.Verdict // for span
}

// Begin returns a run for what was asked at a door. A nil counter counts nothing.
func Begin(c Counter, door string) Run { return Run{counter: c, door: door} }

// RecordTo makes the run record what it counts; nil records nothing.
func (r *Run) RecordTo(to Recorder) { r.recorder = to }

// PartOf makes the run record which trace the request is part of. The source is asked if there is
// something to record.
func (r *Run) PartOf(traced trace.Source) { r.traced = traced }

// Annotate makes the run add to a span what the request came to as a whole: refused if anything in
// it was. A nil span is none.
func (r *Run) Annotate(span trace.Span) { r.span = span }

// Decision says that the verdicts that follow are those of one more acquire.
func (r *Run) Decision() {
	if r.decided {
		r.decisions[r.last]++
	}
	r.decided, r.last = true, rule.Allowed
}

// Decided reports whether there was a decision.
func (r *Run) Decided() bool { return r.decided }

// Verdict counts one verdict. An empty namespace is the default one; an empty rule is none.
func (r *Run) Verdict(ns []byte, rule string, v rule.Verdict) {
	r.last = worse(r.last, v)
	if r.span != nil {
		r.overall = worse(r.overall, v)
	}
	if r.n > 0 && v == r.verdict && rule == r.rule && bytes.Equal(ns, r.ns) {
		r.n++
		return
	}
	r.flush()
	r.ns, r.rule, r.verdict, r.n = ns, rule, v, 1
}

// worse returns what an acquire comes to whose verdicts are a and b: one that refuses is enough,
// and one of a rule in shadow matters where none does.
func worse(a, b rule.Verdict) rule.Verdict {
	if a == rule.Refused || b == rule.Refused {
		return rule.Refused
	}
	return max(a, b)
}

// flush counts what is equal.
func (r *Run) flush() {
	if r.n > 0 && r.counter != nil {
		r.counter.Count(r.door, r.ns, r.rule, r.verdict, r.n)
	}
	r.n = 0
}

// End counts the rest. The request took this long, and so did each decision that was part of it.
func (r *Run) End(took time.Duration) {
	r.flush()
	if r.decided && r.span != nil {
		r.span.Set(trace.Verdict(r.overall.String()))
	}
	if r.decided && r.counter != nil {
		r.decisions[r.last]++
		r.counter.Took(r.door, took, r.decisions)
	}
	r.decisions, r.decided = [rule.Verdicts]int64{}, false
}

// Origin says where a limit of a check is from.
type Origin struct {
	// Rule is nil if the limit is of no rule.
	Rule *rule.Rule
	// Max is what the rule says, whatever its state.
	Max int64
	// First says that the limit is the first one of its rule.
	First bool
	// Version is the version of the rules that the rule is of.
	Version int64
	// Distinct says that the limit is on different values. Whether such a limit was too low is
	// known from its result, whatever the state of its rule.
	Distinct bool
}

// Refuses reports whether the limit refused, or would have refused if its rule were on. n is what
// the check asked for.
func (o Origin) Refuses(l *syncer.LimitResult, res *syncer.Result, n int64) bool {
	if o.Rule == nil || o.Distinct || o.Rule.State == rule.On {
		return l.Refused
	}
	count := l.Count
	if !res.Allowed {
		count += n
	}
	return count > o.Max
}

// compared is the limits from one index up to another that one rule, or none, brought.
type compared struct {
	limits   []syncer.LimitResult
	of       func(k int) Origin // nil if none is of a rule
	from, to int
}

// plain is limits that are of no rule.
func plain(limits []syncer.LimitResult) compared { return compared{limits, nil, 0, len(limits)} }

// Check counts the verdicts on a check, the j-th of its operation: one of each rule that judged it,
// and one of its limits that are of no rule. The limits of each follow each other; of says where
// limit k is from, and is nil if none is of a rule.
func (r *Run) Check(c *syncer.Check, j int, res *syncer.Result, of func(k int) Origin) {
	judged := &res.Checks[j]
	if of == nil {
		r.origin(c, Origin{}, judged.Refused, plain(judged.Limits))
		return
	}
	var last Origin
	refuses, from := false, 0
	end := func(to int) {
		banned := last.Rule != nil && res.BannedBy(j, last.Rule.Name)
		r.origin(c, last, refuses || banned, compared{judged.Limits, of, from, to})
		refuses, from = false, to
	}
	for k := range judged.Limits {
		o := of(k)
		if k > 0 && (o.First || o.Rule == nil && last.Rule != nil) {
			end(k)
		}
		last, refuses = o, refuses || o.Refuses(&judged.Limits[k], res, c.N)
	}
	end(len(judged.Limits))
	if r.shadow {
		r.shadow = false
		if n, ok := r.counter.(ShadowNoter); ok {
			n.NoteShadow(c.NS, c.Key)
		}
	}
}

// origin counts the verdict of limits that are from one origin. A rule that is off has none.
func (r *Run) origin(c *syncer.Check, o Origin, refuses bool, limits compared) {
	v := rule.VerdictOf(refuses, false)
	switch {
	case o.Rule == nil:
		r.Verdict(c.NS, "", v)
		if n, ok := r.counter.(RefusalNoter); ok && refuses {
			n.NoteRefused(c.NS, limits.limits[limits.from:limits.to])
		}
	case o.Rule.State == rule.Off:
		return
	default:
		v = rule.VerdictOf(refuses, o.Rule.State == rule.Shadow)
		r.Verdict(c.NS, o.Rule.Name, v)
		r.shadow = r.shadow || v == rule.ShadowRefused
	}
	if r.Records(v) {
		r.record(c, o, v, limits)
	}
}

// Records reports whether a verdict that was counted with [Run.Verdict] is to be recorded.
func (r *Run) Records(v rule.Verdict) bool {
	return r.recorder != nil && r.recorder.Chosen(v)
}
