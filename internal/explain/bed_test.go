package explain_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// bed is a node that counts in memory, with a clock that the test moves, and its explainer.
type bed struct {
	t         *testing.T
	now       atomic.Int64 // unix milliseconds
	node      *node.Node
	explainer explain.Explainer
	history   *verdicts.History
	request   ask.Request
}

// rulesOf has a set of rules.
type rulesOf struct{ set *twotier.RuleSet }

func (r rulesOf) Rules() *twotier.RuleSet { return r.set }

// steady is a store whose clock agrees with the test's.
type steady struct{}

func (steady) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }

func (steady) Health() cluster.StoreHealth { return cluster.StoreHealth{Up: true} }

func newBed(t *testing.T, rules []twotier.Rule) *bed {
	t.Helper()
	b := &bed{t: t}
	const start = 1_767_225_600_000
	b.now.Store(start)
	wall := func() time.Time { return time.UnixMilli(b.now.Load()) }
	clock := storeclock.New(wall, func() time.Duration {
		return time.Duration(b.now.Load()-start) * time.Millisecond
	})
	place := twotier.Placement{Partitions: 8}
	opt := node.Options{ID: "n1", Store: steady{}, Placement: place, Clock: clock,
		ClockInterval: time.Hour}
	var err error
	opt.Counter, err = syncer.New(syncer.Options{Now: clock.Now, Placement: place,
		Store: embedded.New(embedded.Options{Now: wall})})
	must.Succeed(t, err)
	b.node, err = node.New(opt)
	must.Succeed(t, err)
	must.Succeed(t, b.node.Open(t.Context(), ""))
	t.Cleanup(func() { must.Succeed(t, b.node.Close(context.Background())) })
	set := rulesOf{twotier.NewRuleSet(rules).Numbered(7)}
	b.explainer = explain.Explainer{Service: b.node, Refusals: b.node, Rules: set}
	b.history = verdicts.NewHistory(b.node.Verdicts(), b.node, clock.Now)
	secret := &ask.Holds{Now: clock.Now, Tally: holds.Tally{Now: clock.Now}}
	secret.Sealer.SetSecret([]byte("secret"))
	b.request = ask.Request{Rules: set, Holds: secret}
	return b
}

// step is an acquire.
type step struct {
	key    string
	n      int64
	rules  []string
	limits []twotier.Limit
	hold   int64
	dryRun bool
}

// acquire executes an acquire as an endpoint does, and returns its result and the id of its
// refusal.
func (b *bed) acquire(s step) (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	r := &b.request
	r.Reset()
	r.BeginOp()
	fail := func(f *request.Failure) {
		b.t.Helper()
		if f != nil {
			b.t.Fatalf("%+v: %s: %s", s, f.Field, f.Detail)
		}
	}
	for _, l := range s.limits {
		r.AddLimit(l, []byte("text"))
	}
	for _, name := range s.rules {
		fail(r.AddNamedRule([]byte(name)))
	}
	c := twotier.Check{Key: []byte(s.key), N: s.n}
	_, _, f := r.PrepareCheck(&c, twotier.Acquire)
	fail(f)
	r.EndCheck(&c, twotier.Acquire)
	op := twotier.Op{Kind: twotier.Acquire, Hold: s.hold, DryRun: s.dryRun}
	if r.NeedsHold(&op) {
		fail(r.CheckHold(&op))
	}
	r.EndOp(&op, 0)
	return b.do()
}

// addValues adds values to a key, judged by a rule.
func (b *bed) addValues(key, rule string, values ...string) (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	var add [][]byte
	for _, value := range values {
		add = append(add, []byte(value))
	}
	r := &b.request
	r.Reset()
	r.BeginOp()
	r.AddValues(add)
	f := r.AddNamedRule([]byte(rule))
	if f == nil {
		f = r.EndDistinct(new(twotier.Op), &twotier.Check{Key: []byte(key)}, 0)
	}
	if f != nil {
		b.t.Fatal(f)
	}
	return b.do()
}

// do executes the only operation of the request, and returns its result and the id of its refusal.
func (b *bed) do() (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	r := &b.request
	r.Link()
	results := r.EmptyResults()
	must.Succeed(b.t, b.node.Do(b.t.Context(), &r.Ops[0], &results[0]))
	r.CountVerdicts(b.node.Verdicts(),
		&verdicts.Arrival{Endpoint: verdicts.HTTP, Began: time.Now()})
	res := results[0] // the next request reuses the results
	return &res, r.RefusalOf(0)
}

// explain explains a key, or the refusal with an id.
func (b *bed) explain(q explain.Query) *explain.Explanation {
	b.t.Helper()
	plan, f := b.explainer.Plan(b.t.Context(), &q)
	var text []byte
	if f == nil {
		text, f = plan.Append(b.t.Context(), nil, 1<<20)
	}
	if f != nil {
		b.t.Fatalf("%+v: %s", q, f.Detail)
	}
	a := new(explain.Explanation)
	must.Succeed(b.t, json.Unmarshal(text, a))
	return a
}
