package ruletest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// execute makes the request of a step.
func (e *engine) execute(ctx context.Context, s *step) (*outcome, error) {
	e.request.Reset()
	var o *outcome
	var f *request.Failure
	switch {
	case s.settle != "":
		o, f = e.settle(ctx, s)
	case s.renew != "":
		o, f = e.renew(ctx, s)
	case len(s.entries) > 0:
		return e.askDomain(ctx, s)
	case len(s.values) > 0:
		o, f = e.add(ctx, s)
	default:
		o, f = e.acquire(ctx, s)
	}
	if f != nil && f.Field != "" {
		return nil, fmt.Errorf("%s: %s", f.Field, f.Detail)
	}
	if f != nil {
		return nil, f
	}
	return o, nil
}

// nameRules makes the rules of a check judge it.
func (e *engine) nameRules(c *check) *request.Failure {
	for _, name := range c.rules {
		if f := e.request.AddNamedRule([]byte(name)); f != nil {
			f.Field = "rules"
			return f
		}
	}
	return nil
}

// space returns the namespace of a check, or nil if it names none.
func (c *check) space() []byte {
	if c.ns == "" {
		return nil
	}
	return []byte(c.ns)
}

// acquire asks for events.
func (e *engine) acquire(ctx context.Context, s *step) (*outcome, *request.Failure) {
	r := &e.request
	r.BeginOp()
	for j := range s.checks {
		c := &s.checks[j]
		if j > 0 {
			r.BeginCheck()
		}
		if f := e.nameRules(c); f != nil {
			return nil, f
		}
		one := twotier.Check{NS: c.space(), Key: []byte(c.key), N: c.n}
		if _, _, f := r.PrepareCheck(&one, twotier.Acquire); f != nil {
			return nil, f
		}
		r.EndCheck(&one, twotier.Acquire)
	}
	op := s.op
	op.Kind = twotier.Acquire
	if r.NeedsHold(&op) {
		if f := r.CheckHold(&op); f != nil {
			return nil, f
		}
	}
	r.EndOp(&op, 0)
	r.Link()
	res := &r.EmptyResults()[0]
	if err := e.node.Do(ctx, &r.Ops[0], res); err != nil {
		f := request.FailureOfOp(err, &r.Ops[0], s.severally)
		return nil, &f
	}
	if id := r.HoldID(0, res); id != "" {
		e.ids[s.as] = id
		if op.Release {
			e.addDeadline(id, r.Ops[0].Until)
		}
	}
	return e.acquired(s, res), nil
}

func (e *engine) acquired(s *step, res *twotier.Result) *outcome {
	o := &outcome{allowed: res.Allowed, retryAfter: res.RetryAfter}
	for j := range res.Checks {
		path := ""
		if s.severally {
			path = fmt.Sprintf("checks[%d].", j)
		}
		beyond := e.request.Ops[0].NeededBeyond(j, res)
		for k := range res.Checks[j].Limits {
			if of := e.request.RuleOf(0, j, k); of != nil && of.Rule.State != twotier.RuleOff {
				o.judge(path, of, &res.Checks[j].Limits[k], beyond)
			}
		}
		for _, l := range res.Leases {
			if l.Check == j {
				o.record(path+l.Rule+"/concurrent", l.Open, l.Max, l.Refused, l.Shadow)
			}
		}
		for _, ban := range res.Bans {
			if ban.Check == j && !ban.Started {
				o.by = append(o.by, path+ban.Rule+"/ban")
			}
		}
	}
	return o
}

// judge records the verdict of a limit of a rule.
func (o *outcome) judge(path string, of *verdicts.Ruled, l *twotier.LimitResult, beyond int64) {
	limit := of.Limit()
	name, refuses := path+of.Rule.Name+"/"+limit.Text, of.Refuses(l, beyond)
	o.record(name, l.Count, limit.Max, refuses, of.Rule.State == twotier.RuleShadow)
	if of.IsNear(l) && !refuses {
		o.near = append(o.near, name)
	}
}

func (o *outcome) record(name string, count, most int64, refuses, shadow bool) {
	o.limits = append(o.limits, judged{name, count, most})
	switch {
	case refuses && shadow:
		o.shadow = append(o.shadow, name)
	case refuses:
		o.by = append(o.by, name)
	}
}

// add adds different values to a key.
func (e *engine) add(ctx context.Context, s *step) (*outcome, *request.Failure) {
	c, r := &s.checks[0], &e.request
	values := make([][]byte, len(s.values))
	for i, value := range s.values {
		values[i] = []byte(value)
	}
	r.BeginOp()
	r.AddValues(values)
	if f := e.nameRules(c); f != nil {
		return nil, f
	}
	one := twotier.Check{NS: c.space(), Key: []byte(c.key)}
	if f := r.EndDistinct(new(twotier.Op), &one, 0); f != nil {
		return nil, f
	}
	if !r.HasNamedRules() {
		return nil, request.FieldFailure("rules", "missing; name one, or give the namespace a "+
			"rule with distinct and default: true")
	}
	r.Link()
	res := &r.EmptyResults()[0]
	if err := e.node.Do(ctx, &r.Ops[0], res); err != nil {
		f := r.FailureOfOp(0, err, false)
		return nil, &f
	}
	o := &outcome{allowed: res.Allowed, retryAfter: res.RetryAfter}
	v := r.ValuesOf(0, 0, res)
	for k := range v.Judged {
		o.judge("", r.RuleOf(0, 0, v.First+k), &v.Judged[k], 0)
	}
	return o, nil
}

// settle settles a hold.
func (e *engine) settle(ctx context.Context, s *step) (*outcome, *request.Failure) {
	id, made := e.ids[s.settle]
	if !made {
		return nil, request.FieldFailure("settle", s.settle+" was refused, and is no hold")
	}
	settled, f := e.request.Settle(ctx, e.node, &ask.Settling{ID: id, All: s.checks[0].n})
	if f != nil {
		return nil, f
	}
	return &outcome{settled: true, over: settled.Over}, nil
}

// renew moves the end of a hold.
func (e *engine) renew(ctx context.Context, s *step) (*outcome, *request.Failure) {
	id, made := e.ids[s.renew]
	if !made {
		return nil, request.FieldFailure("renew", s.renew+" was refused, and is no hold")
	}
	renewed, f := e.request.Renew(ctx, e.node, id, s.lasts)
	if f != nil {
		return nil, f
	}
	e.ids[s.renew] = renewed.ID
	i := slices.IndexFunc(e.deadlines, func(d deadline) bool { return d.id == id })
	if i >= 0 { // it is to be released
		e.deadlines = slices.Delete(e.deadlines, i, i+1)
		e.addDeadline(renewed.ID, renewed.Until)
	}
	return &outcome{settled: true}, nil
}

// askDomain asks as Envoy does.
func (e *engine) askDomain(ctx context.Context, s *step) (*outcome, error) {
	type descriptor struct {
		Entries []entry `json:"entries"`
		Hits    *int64  `json:"hitsAddend,omitempty"`
	}
	question := struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
	}{Domain: s.domain}
	for _, entries := range s.entries {
		d := descriptor{Entries: entries}
		if s.checks[0].hasN {
			d.Hits = &s.checks[0].n
		}
		question.Descriptors = append(question.Descriptors, d)
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	e.domain = new(outcome)
	_, over, err := e.limiter.JSON(ctx, nil, body)
	if err != nil {
		return nil, err
	}
	e.domain.allowed = !over
	return e.domain, nil
}
