package explain_test

import (
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/testing/must"
)

// TestRefusalsOfARule: an explanation of one rule lists its refusals, and no others, however many
// there are.
func TestRefusalsOfARule(t *testing.T) {
	hourly := []twotier.RuleLimit{{Window: 3_600_000, Text: "1h"}}
	b := newBed(t, []twotier.Rule{{Name: "login", Limits: hourly},
		{Name: "search", Limits: hourly}})
	b.acquire(step{key: "k", n: 1, rules: []string{"login"}})
	for range 25 {
		b.now.Add(60_000)
		b.acquire(step{key: "k", n: 1, rules: []string{"search"}})
	}
	for rule, want := range map[string]int{"login": 1, "search": 20} {
		list := b.explain(explain.Query{Key: []byte("k"), Rule: rule}).Refusals
		if len(list) != want || list[0].Rule != rule {
			t.Errorf("%s: %d refusals: %+v", rule, len(list), list)
		}
	}
	if list := b.explain(explain.Query{Key: []byte("k")}).Refusals; len(list) != 20 {
		t.Errorf("of all rules: %d refusals", len(list))
	}
}

// TestValuesPassForOneNewValue: the time at which one new value passes does not depend on the sizes
// of other requests.
func TestValuesPassForOneNewValue(t *testing.T) {
	b := newBed(t, []twotier.Rule{{Name: "devices", Distinct: []twotier.RuleLimit{
		{Window: 60_000, Max: 3, Text: "1m"}}}})
	for _, value := range []string{"a", "b", "c"} {
		b.addValues("k", "devices", value)
		b.now.Add(10_000)
	}
	passesAt := func() int64 {
		t.Helper()
		r := b.explain(explain.Query{Key: []byte("k"), Rule: "devices"}).Rules[0]
		if r.Passes {
			t.Errorf("%+v", r)
		}
		return r.PassesAt
	}
	several, _ := b.addValues("k", "devices", "d", "e")
	if at := passesAt(); several.RetryAfter <= 0 || at != 0 {
		t.Errorf("passes at %d, known from two values", at)
	}
	one, _ := b.addValues("k", "devices", "d")
	want := b.now.Load() + one.RetryAfter
	if one.RetryAfter <= 0 || one.RetryAfter >= several.RetryAfter {
		t.Errorf("two values wait %d, one %d", several.RetryAfter, one.RetryAfter)
	}
	b.now.Add(1)
	b.addValues("k", "devices", "d", "e")
	if at := passesAt(); at != want {
		t.Errorf("passes at %d, want %d", at, want)
	}
}

// TestBucketsEndWithTheWindow: events from before the window are in none of its buckets.
func TestBucketsEndWithTheWindow(t *testing.T) {
	b := newBed(t, []twotier.Rule{{Name: "hourly", Limits: []twotier.RuleLimit{
		{Window: 3_600_000, Max: 5, Text: "1h"}}}})
	b.acquire(step{key: "k", n: 4, rules: []string{"hourly"}})
	b.now.Add(3_620_000)
	res, _ := b.acquire(step{key: "k", n: 5, rules: []string{"hourly"}})
	if !res.Allowed {
		must.Succeed(t, res.Err)
		t.Fatalf("%+v", res)
	}
	w := b.explain(explain.Query{Key: []byte("k")}).Rules[0].Windows[0]
	if len(w.Buckets) != 1 || w.Buckets[0].Count != 5 {
		t.Errorf("%+v", w)
	}
}

// TestShadowThatNoRequestNames has rules of each kind in shadow that would refuse a key. They are
// unasked until a request names them, and again a day later.
func TestShadowThatNoRequestNames(t *testing.T) {
	one := []twotier.RuleLimit{{Window: 3_600_000 * 25, Max: 1, Text: "25h"}}
	b := newBed(t, []twotier.Rule{
		{Name: "events", Limits: one, State: twotier.RuleShadow},
		{Name: "near", Limits: one, State: twotier.RuleShadow, Warn: 50},
		{Name: "values", Distinct: one, State: twotier.RuleShadow},
		{Name: "on", Limits: one},
	})
	unasked := func(want ...string) {
		t.Helper()
		b.history.Record()
		var got []string
		for _, r := range b.explain(explain.Query{Key: []byte("k")}).Rules {
			if r.WouldRefuse != (r.State == "shadow") {
				t.Errorf("%s would refuse: %v", r.Rule, r.WouldRefuse)
			}
			if r.Unasked {
				got = append(got, r.Rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("unasked are %v, want %v", got, want)
		}
	}
	limits := []twotier.Limit{{Window: 60_000, Max: 9}}
	b.acquire(step{key: "k", n: 2, limits: limits}) // as an application that names no rule
	b.addValues("k", "values", "a", "b")            // this rule is asked for
	unasked("events", "near")
	b.acquire(step{key: "k", n: 1, rules: []string{"events"}})
	unasked("near")
	b.acquire(step{key: "other", n: 1, rules: []string{"near"}})
	unasked()
	b.now.Add(3_600_000*24 + 1000)
	b.acquire(step{key: "k", n: 2, limits: limits})
	b.acquire(step{key: "k", n: 1, rules: []string{"events"}, dryRun: true}) // does not count
	b.addValues("k", "values", "c", "d")
	unasked("events", "near")
}
