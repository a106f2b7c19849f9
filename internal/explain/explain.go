package explain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/request"
)

// Refusals finds refusals on all nodes. A node implements it.
type Refusals interface {
	// Refusals returns the recent refusals of a key, newest first.
	Refusals(ctx context.Context, ns, key []byte, limit int) []refusallog.Refusal
	// Refusal returns the refusal with an id. The error wraps [refusallog.ErrNotFound] if there is
	// none.
	Refusal(ctx context.Context, id string) (refusallog.Refusal, error)
	// Decider returns the node that decides about a key, or "" if Redis does.
	Decider(ns, key []byte) string
	// Identify returns the name of this node and the time in unix milliseconds.
	Identify() (node string, now int64)
}

// Service judges dry runs and counts.
type Service interface {
	ask.Service
	ask.Keys
}

// Explainer explains refusals. All fields but Rules are required.
type Explainer struct {
	Service  Service
	Refusals Refusals
	// Rules has the rules in force. Nil if there are none.
	Rules ask.Rules
}

// Query is what to explain: a key, or the refusal with an ID.
type Query struct {
	NS, Key []byte
	// Rule selects a rule; empty selects all rules of the namespace.
	Rule string
	ID   string
	// Grant limits the query; nil allows everything.
	Grant *twotier.Grant
}

const (
	// maxRefusals bounds the refusals in an explanation.
	maxRefusals = 20
	// maxSearched bounds the refusals among which those by the rule of a query are looked for.
	maxSearched = 200
)

// Plan finds out what the answer to a query takes. It needs a role to read in the namespace of the
// key.
func (e *Explainer) Plan(ctx context.Context, q *Query) (*Plan, *request.Failure) {
	a := &Explanation{Holds: []Holds{}}
	if q.ID != "" {
		r, err := e.findRefusal(ctx, q)
		if err != nil {
			return nil, failureOf(err)
		}
		a.Refusal = &r
		q.NS, q.Key = []byte(r.NS), []byte(r.Key)
	}
	set := new(twotier.RuleSet)
	if e.Rules != nil {
		if set = e.Rules.Rules(); set == nil {
			return nil, request.RulesUnknownFailure()
		}
	}
	rules, f := choose(set, q)
	if f != nil {
		return nil, f
	}
	if len(q.NS) == 0 {
		q.NS = []byte(twotier.DefaultNamespace)
	}
	if f := ask.CheckGrant(q.Grant, twotier.RoleRead, q.NS); f != nil {
		return nil, f
	}
	a.Key, a.NS, a.RulesVersion = string(q.Key), string(q.NS), set.Version()
	a.Node, a.At = e.Refusals.Identify()
	a.Owner = e.Refusals.Decider(q.NS, q.Key)
	a.Refusals = e.findRefusals(ctx, q)
	if q.Rule == "" {
		rules = append(rules, unnamedRules(set, a)...)
	}
	return &Plan{e, q, rules, a, map[int64][]Bucket{}}, nil
}

// findRefusal returns the refusal with the id of a query. To a grant for some namespaces, all ids
// of others and all unknown ones look alike.
func (e *Explainer) findRefusal(ctx context.Context, q *Query) (refusallog.Refusal, error) {
	r, err := e.Refusals.Refusal(ctx, q.ID)
	if q.Grant != nil && !q.Grant.AllNamespaces() && (errors.Is(err, refusallog.ErrNotFound) ||
		err == nil && !q.Grant.HasNamespace([]byte(r.NS))) {
		return r, refusallog.ErrNotFound
	}
	return r, err
}

// findRefusals returns the recent refusals of the key of a query, by its rule if it names one. The
// list is never nil.
func (e *Explainer) findRefusals(ctx context.Context, q *Query) []refusallog.Refusal {
	limit := maxRefusals
	if q.Rule != "" {
		limit = maxSearched
	}
	list := []refusallog.Refusal{}
	for _, r := range e.Refusals.Refusals(ctx, q.NS, q.Key, limit) {
		if (q.Rule == "" || r.Rule == q.Rule) && len(list) < maxRefusals {
			list = append(list, r)
		}
	}
	return list
}

func failureOf(err error) *request.Failure {
	if errors.Is(err, refusallog.ErrNotFound) {
		return &request.Failure{Kind: request.NotFound, Field: "id", Detail: err.Error()}
	}
	f := request.FailureOf(err, false)
	return &f
}

// choose returns the rules of the query, and sets its namespace if the query leaves it to the rule.
func choose(set *twotier.RuleSet, q *Query) (rules []*twotier.Rule, f *request.Failure) {
	if q.Rule == "" {
		ns := cmp.Or(string(q.NS), twotier.DefaultNamespace)
		for _, name := range set.Names() {
			if r := set.Find([]byte(name)); r.Space() == ns {
				rules = append(rules, r)
			}
		}
		return rules, nil
	}
	r, f := ask.FindRule(set, q.Grant, []byte(q.Rule))
	if f != nil {
		return nil, request.FieldFailure("rule", f.Detail)
	}
	if len(q.NS) > 0 && !bytes.Equal(q.NS, r.NS()) {
		return nil, request.FieldFailure("ns", "rule "+r.Name+" counts in namespace "+r.Space()+
			"; leave ns out")
	}
	q.NS = r.NS()
	return []*twotier.Rule{r}, nil
}

// maxUnnamed bounds the lists of limits without a rule in an explanation.
const maxUnnamed = 8

// unnamedRules returns rules that stand for the limits in recent refusals that no rule of the set
// has: the limits of requests, and those of Envoy's domains. The newest come first.
func unnamedRules(set *twotier.RuleSet, a *Explanation) (rules []*twotier.Rule) {
	recent := a.Refusals
	if a.Refusal != nil {
		recent = append([]refusallog.Refusal{*a.Refusal}, recent...)
	}
	seen := map[string]bool{}
	for i := range recent {
		if r := &recent[i]; set.Find([]byte(r.Rule)) == nil && len(rules) < maxUnnamed {
			one, identity := ruleOf(r)
			if one != nil && !seen[identity] {
				seen[identity] = true
				rules = append(rules, one)
			}
		}
	}
	return rules
}

// ruleOf returns a rule with the limits of a refusal, and a text that is the same for equal ones.
func ruleOf(r *refusallog.Refusal) (of *twotier.Rule, identity string) {
	of = &twotier.Rule{Name: r.Rule, Namespace: r.NS}
	identity = r.Rule
	for _, l := range r.Limits {
		limit, wrong := request.ParseLimitWindow([]byte(l.Window))
		if wrong != "" {
			return nil, ""
		}
		one := twotier.RuleLimit{Window: limit.Window, Period: limit.Period, Max: l.Limit,
			Text: l.Window}
		if r.Reason == refusallog.Distinct.String() {
			of.Distinct = append(of.Distinct, one)
		} else {
			of.Limits = append(of.Limits, one)
		}
		identity += " " + formatLimit(l)
	}
	if r.Reason == refusallog.Concurrent.String() {
		of.Concurrent = r.Limit
		identity += formatLimit(refusallog.Judged{Window: "concurrent", Limit: r.Limit})
	}
	return of, identity
}

// Plan is an answer to a query that is still to be built: it grows with the rules of the namespace.
type Plan struct {
	*Explainer
	query  *Query
	rules  []*twotier.Rule
	answer *Explanation
	// series has the buckets of windows, by length in milliseconds.
	series map[int64][]Bucket
}

// Approximate sizes of the parts of an answer as JSON: of all but the rules, with the most
// refusals, of a rule, and of a limit with its buckets.
const (
	headBytes  = 16 << 10
	ruleBytes  = 256
	limitBytes = 512
)

// rulesAtOnce bounds the rules whose verdicts are found in one step: other requests for the key
// wait for a step at most.
const rulesAtOnce = 64

// Bytes returns how much memory the answer may take, to be reserved before it is built.
func (p *Plan) Bytes() int64 {
	n := int64(headBytes)
	for _, r := range p.rules {
		limits := 1 + len(r.For(p.query.Key)) + len(r.DistinctFor(p.query.Key))
		n += ruleBytes + int64(len(r.Name)+limits*limitBytes)
	}
	return n
}

// Append appends the answer as JSON to b. It fails if the answer is longer than most bytes.
func (p *Plan) Append(ctx context.Context, b []byte, most int64) ([]byte, *request.Failure) {
	start := len(b)
	b = append(b, `{"rules":[`...)
	for first := 0; first < len(p.rules); first += rulesAtOnce {
		some := p.rules[first:min(first+rulesAtOnce, len(p.rules))]
		verdicts, err := p.judge(ctx, some)
		if err != nil {
			return b, failureOf(err)
		}
		for i := range verdicts {
			b = append(appendJSON(b, &verdicts[i]), ',')
		}
		if int64(len(b)-start) > most {
			return b, request.FieldFailure("rule", fmt.Sprintf("the explanation of all rules "+
				"takes more than the %d KiB that an answer may take here, by --max-memory; name "+
				"a rule", most>>10))
		}
		if first == 0 && len(p.rules) > len(some) {
			likely := int64((len(b) - start) * len(p.rules) / len(some))
			b = slices.Grow(b, int(min(likely, p.Bytes(), most)))
		}
		runtime.Gosched()
	}
	if err := p.addHolds(ctx); err != nil {
		return b, failureOf(err)
	}
	b = append(bytes.TrimSuffix(b, []byte{','}), "],"...)
	return append(b, appendJSON(nil, p.answer)[1:]...), nil
}

// appendJSON appends v as JSON. It escapes only what JSON needs escaped.
func appendJSON(b []byte, v any) []byte {
	text := bytes.NewBuffer(b)
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // it can't fail: all numbers are finite
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'})
}
