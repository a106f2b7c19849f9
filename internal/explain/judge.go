package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// Explanation describes the state of a key. Times are unix milliseconds.
type Explanation struct {
	Key string `json:"key"`
	NS  string `json:"ns"`
	At  int64  `json:"at"`
	// Node is the node that answers. Owner is the node that decides about the key; it is empty if
	// Redis does.
	Node  string `json:"node"`
	Owner string `json:"owner,omitempty"`
	// Source and Degraded are as in other answers.
	Source       string `json:"source"`
	Degraded     bool   `json:"degraded,omitempty"`
	RulesVersion int64  `json:"rules_version"`
	// Refusal is the refusal with the id of the query.
	Refusal *refusallog.Refusal `json:"refusal,omitempty"`
	// Ban is the ban that ends last.
	Ban *Ban `json:"ban,omitempty"`
	// Rules has the rules of the namespace by name, and then the limits without a rule in recent
	// refusals.
	Rules []Rule `json:"rules,omitempty"`
	// Holds is empty, or has one element.
	Holds []Holds `json:"holds"`
	// Refusals are by the rule of the query, or by all if it has none, newest first.
	Refusals []refusallog.Refusal `json:"refusals"`
}

// Ban is a ban in force.
type Ban struct {
	Rule  string `json:"rule"`
	Until int64  `json:"until"`
}

// Holds describes the open holds of a key. NextEnd is how many milliseconds later the first of them
// ends.
type Holds struct {
	Open    int64 `json:"open"`
	NextEnd int64 `json:"next_end_ms,omitempty"`
}

// Rule is the verdict of a rule, or of limits without a rule, on one more event of the key.
type Rule struct {
	// Rule is empty for limits without a rule.
	Rule  string `json:"rule"`
	State string `json:"state"`
	// Passes is the verdict on a request for one event or, for a rule that judges only values, for
	// one new value. Rules in shadow or off pass everything.
	Passes bool `json:"passes"`
	// PassesAt is when it passes if nothing else is counted. It is left out if it passes now, or if
	// the time is unknown.
	PassesAt int64 `json:"passes_at,omitempty"`
	// Never means that waiting does not help.
	Never bool `json:"never,omitempty"`
	// WouldRefuse means that the rule, which is in shadow, would refuse if it were on.
	WouldRefuse bool `json:"would_refuse,omitempty"`
	// Unasked means that no request has asked for the rule within a day: although it would refuse,
	// it judges nothing.
	Unasked bool `json:"unasked,omitempty"`
	// BannedUntil is the end of the rule's ban of the key.
	BannedUntil int64       `json:"banned_until,omitempty"`
	Windows     []Window    `json:"windows,omitempty"`
	Distinct    []Values    `json:"distinct,omitempty"`
	Concurrent  *Concurrent `json:"concurrent,omitempty"`
	// Error is the reason why the rule can't judge the key, such as a window that is too long.
	Error string `json:"error,omitempty"`
}

// Window is a limit on events.
type Window struct {
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	// Count is the number that decisions compare with the limit, between Min and Max.
	Count     int64 `json:"count"`
	Min       int64 `json:"min"`
	Max       int64 `json:"max"`
	Remaining int64 `json:"remaining"`
	// Lent is how many events other nodes may count in addition.
	Lent     int64 `json:"lent,omitempty"`
	BucketMS int64 `json:"bucket_ms"`
	// Buckets are the largest ones in the window, the largest first, without the events before the
	// window: their sum is at most Max. There are none if they can't be read now.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// Bucket is the count of a period of time.
type Bucket struct {
	Start   int64 `json:"start"`
	WidthMS int64 `json:"width_ms"`
	Count   int64 `json:"count"`
}

// Values is a limit on different values. Passes is the verdict on one new value.
type Values struct {
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	Count  int64  `json:"count"`
	// Error is the relative standard error of the count, 0 if it is exact.
	Error     float64 `json:"error"`
	Remaining int64   `json:"remaining"`
	Passes    bool    `json:"passes"`
}

// Concurrent is a limit on open leases.
type Concurrent struct {
	Limit     int64 `json:"limit"`
	Count     int64 `json:"count"`
	Remaining int64 `json:"remaining"`
}

// formatLimit spells a limit of a refusal.
func formatLimit(l refusallog.Judged) string { return fmt.Sprintf("%d/%s", l.Limit, l.Window) }

// judge returns the verdicts of rules.
func (p *Plan) judge(ctx context.Context, rules []*twotier.Rule) (judged []Rule, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var ops []twotier.Op
	for _, r := range rules {
		ops = append(ops, p.dryRun(r), p.count(r))
	}
	// An operation without limits stands for a rule that does not judge events.
	results := make([]twotier.Result, len(ops))
	var asked []twotier.Op
	var at []int
	for i := range ops {
		if c := &ops[i].Checks[0]; len(c.Limits)+len(ops[i].Leases) > 0 {
			asked, at = append(asked, ops[i]), append(at, i)
		}
	}
	answers := make([]twotier.Result, len(asked))
	if len(asked) > 0 {
		p.Service.DoAll(ctx, asked, answers)
	}
	for i := range answers {
		results[at[i]] = answers[i]
	}
	for i, r := range rules {
		one, err := p.verdict(ctx, r, &results[2*i], &results[2*i+1])
		if err != nil {
			return nil, err
		}
		one.Unasked = one.WouldRefuse && verdicts.NeverAsked(ctx, p.Service, r)
		judged = append(judged, one)
	}
	return judged, nil
}

// dryRun returns the operation that asks for the verdict of a rule on one more event. It names no
// events, so the counts in its result are those before it.
func (p *Plan) dryRun(r *twotier.Rule) twotier.Op {
	c := twotier.Check{NS: p.query.NS, Key: p.query.Key}
	for _, l := range r.For(p.query.Key) {
		c.Limits = append(c.Limits, twotier.Limit{Window: l.Window, Max: r.Enforced(l),
			Period: l.Period})
	}
	op := twotier.Op{Kind: twotier.Acquire, DryRun: true}
	if r.Bans() && len(c.Limits) > 0 {
		op.Rules = []twotier.BanRule{{Rule: r.Name, Window: r.Ban, To: len(c.Limits)}}
	}
	if r.Concurrent > 0 {
		op.Hold = 1000 // any length will do
		op.Leases = []twotier.Lease{{Max: r.Concurrent, Rule: r.Name,
			Shadow: r.State != twotier.RuleOn}}
	}
	op.Checks = []twotier.Check{c}
	return op
}

// count returns the operation that counts the windows of a rule.
func (p *Plan) count(r *twotier.Rule) twotier.Op {
	c := twotier.Check{NS: p.query.NS, Key: p.query.Key, N: 1}
	for _, l := range r.For(p.query.Key) {
		c.Limits = append(c.Limits, twotier.Limit{Window: l.Window, Period: l.Period})
	}
	return twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{c}}
}

// verdict describes the verdict of a rule, given the results of its dry run and of its count.
func (p *Plan) verdict(ctx context.Context, r *twotier.Rule,
	judged, counted *twotier.Result) (one Rule, err error) {
	one = Rule{Rule: r.Name, State: r.State.String(), Passes: true}
	if r.JudgesEvents() {
		err := cmp.Or(judged.Err, counted.Err)
		if invalid, ok := errors.AsType[*twotier.InvalidError](err); ok {
			one.Passes, one.Error = r.State != twotier.RuleOn, invalid.Error()
			return one, nil
		}
		if err != nil {
			return one, err
		}
		p.answer.Source = string(judged.Source)
		p.answer.Degraded = p.answer.Degraded || judged.Degraded
		p.addBans(&one, judged)
		one.Passes = judged.Allowed
		if one.Never = judged.RetryAfter < 0; judged.RetryAfter > 0 {
			one.PassesAt = p.answer.At + judged.RetryAfter
		}
		p.addWindows(ctx, &one, r, judged, counted)
		addConcurrent(&one, r, judged)
	}
	if len(r.DistinctFor(p.query.Key)) > 0 {
		return one, p.addValues(ctx, &one, r)
	}
	return one, nil
}

func (p *Plan) addBans(one *Rule, judged *twotier.Result) {
	for _, b := range judged.Bans {
		one.BannedUntil = b.Until
		if p.answer.Ban == nil || p.answer.Ban.Until < b.Until {
			p.answer.Ban = &Ban{Rule: b.Rule, Until: b.Until}
		}
	}
}

// addWindows adds the limits on events.
func (p *Plan) addWindows(ctx context.Context, one *Rule, r *twotier.Rule,
	judged, counted *twotier.Result) {
	limits := r.For(p.query.Key)
	if len(judged.Checks) == 0 || len(judged.Checks[0].Limits) != len(limits) ||
		len(counted.Checks) == 0 || len(counted.Checks[0].Limits) != len(limits) {
		return // another node's result may be short
	}
	for i, l := range limits {
		decided, read := &judged.Checks[0].Limits[i], &counted.Checks[0].Limits[i]
		w := Window{Window: l.Text, Limit: l.Max, Count: decided.Count,
			Min: min(read.Lo, decided.Count), Max: max(read.Hi, decided.Count),
			Remaining: max(0, l.Max-decided.Count), Lent: max(0, decided.Hi-decided.Count),
			BucketMS: read.BucketMS}
		of := twotier.Limit{Window: l.Window, Period: l.Period}
		if w.Count > 0 {
			w.Buckets = largest(p.buckets(ctx, max(1, of.WindowAt(p.answer.At))), w.Max)
		}
		one.WouldRefuse = one.WouldRefuse || r.State == twotier.RuleShadow && w.Count >= l.Max
		one.Windows = append(one.Windows, w)
	}
}

// maxBuckets bounds the buckets of a window in an explanation.
const maxBuckets = 5

// buckets returns the buckets with events of a window that ends now, oldest first. The first one
// may begin before the window, and count events from before it.
func (p *Plan) buckets(ctx context.Context, window int64) (list []Bucket) {
	if known, ok := p.series[window]; ok {
		return known
	}
	width, points, err := p.Service.Series(ctx, p.query.NS, p.query.Key, window)
	if err == nil {
		for _, at := range points {
			if at.Count > 0 {
				list = append(list, Bucket{Start: at.Start, WidthMS: width, Count: at.Count})
			}
		}
	}
	p.series[window] = list
	return list
}

// largest returns the largest of the buckets of a window, the largest first. What exceeds the
// maximum of the window is from before it, so the oldest buckets lose it.
func largest(buckets []Bucket, most int64) (list []Bucket) {
	for i := len(buckets) - 1; i >= 0; i-- {
		b := buckets[i]
		if b.Count = min(b.Count, most); b.Count > 0 {
			list = append(list, b)
			most -= b.Count
		}
	}
	slices.SortStableFunc(list, func(a, b Bucket) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Start, a.Start))
	})
	return list[:min(maxBuckets, len(list))]
}

// addConcurrent adds the limit on open leases.
func addConcurrent(one *Rule, r *twotier.Rule, judged *twotier.Result) {
	for _, l := range judged.Leases {
		open := l.Open
		if judged.Allowed {
			open-- // the lease that the dry run would take
		}
		one.Concurrent = &Concurrent{Limit: l.Max, Count: open, Remaining: max(0, l.Max-open)}
		one.WouldRefuse = one.WouldRefuse || r.State == twotier.RuleShadow && open >= l.Max
	}
}

// addValues adds the limits on different values.
func (p *Plan) addValues(ctx context.Context, one *Rule, r *twotier.Rule) error {
	limits := r.DistinctFor(p.query.Key)
	windows := make([]twotier.Limit, len(limits))
	for i, l := range limits {
		windows[i] = twotier.Limit{Window: l.Window, Max: twotier.MaxBound}
	}
	op := twotier.Op{Kind: twotier.Count, Values: []twotier.ValuesOf{{Limits: windows}},
		Checks: []twotier.Check{{NS: p.query.NS, Key: p.query.Key}}}
	var res twotier.Result
	if err := p.Service.Do(ctx, &op, &res); err != nil {
		if f := request.FailureOfOp(err, &op, false); f.Kind == request.Invalid {
			one.Error = f.Detail
			return nil
		}
		return err
	}
	p.answer.Source = cmp.Or(p.answer.Source, string(res.Source))
	p.answer.Degraded = p.answer.Degraded || res.Degraded
	passes := true
	var counted []twotier.LimitResult
	if len(res.Values) > 0 { // another node's result may be short
		counted = res.Values[0].Limits
	}
	for i, l := range limits[:min(len(limits), len(counted))] {
		c := &counted[i]
		v := Values{Window: l.Text, Limit: l.Max, Count: c.Count, Error: c.Error,
			Remaining: max(0, l.Max-c.Count), Passes: c.Count < l.Max}
		passes = passes && v.Passes
		one.Distinct = append(one.Distinct, v)
	}
	if one.WouldRefuse = one.WouldRefuse || !passes && r.State == twotier.RuleShadow; passes ||
		r.State != twotier.RuleOn || r.JudgesEvents() {
		return nil
	}
	one.Passes, one.PassesAt = false, p.valuesPassAt(r.Name)
	return nil
}

// valuesPassAt returns when the latest refusal of a single value by a rule ends, or 0 if that is
// unknown. Refusals of several values last longer than that of one.
func (p *Plan) valuesPassAt(rule string) int64 {
	for i := range p.answer.Refusals {
		f := &p.answer.Refusals[i]
		if f.Rule == rule && f.Reason == refusallog.Distinct.String() && f.N == 1 &&
			f.RetryAfter > 0 && f.At+f.RetryAfter > p.answer.At {
			return f.At + f.RetryAfter
		}
	}
	return 0
}

func (p *Plan) addHolds(ctx context.Context) error {
	open, err := p.Service.OpenLeases(ctx, p.query.NS, p.query.Key)
	if err != nil {
		return err
	}
	if open.Open > 0 {
		p.answer.Holds = append(p.answer.Holds, Holds{Open: open.Open, NextEnd: open.NextEnd})
	}
	p.answer.Source = cmp.Or(p.answer.Source, string(open.Source))
	return nil
}
