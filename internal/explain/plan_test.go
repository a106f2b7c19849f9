package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/explain"
)

// manyRules returns rules with long names, limits of every kind, and more of them than are judged
// in one step.
func manyRules() (rules []twotier.Rule) {
	for i := range 200 {
		r := twotier.Rule{Name: fmt.Sprintf("%s%d", strings.Repeat("r", 60), i),
			Concurrent: 1 << 50, Ban: 3_600_000}
		for j := range int64(1 + i%16) {
			r.Limits = append(r.Limits, twotier.RuleLimit{Window: 60_000 * (1 + j), Max: 1 << 50,
				Text: fmt.Sprint(1+j, "m")})
		}
		if i%50 == 0 {
			r.Distinct = []twotier.RuleLimit{{Window: 60_000, Max: 1 << 50, Text: "1m"}}
		}
		rules = append(rules, r)
	}
	return rules
}

// TestAnswersFitInTheirPlans: an answer takes no more than its plan states before it is built,
// however many rules, refusals and buckets it has.
func TestAnswersFitInTheirPlans(t *testing.T) {
	b := newBed(t, append(manyRules(), twotier.Rule{Name: "tight",
		Limits: []twotier.RuleLimit{{Window: 60_000, Text: "1m"}}}))
	key := strings.Repeat("k", 250)
	for range 25 {
		b.acquire(step{key: key, n: 1 << 30, rules: []string{manyRules()[0].Name}, hold: 90_000})
		b.acquire(step{key: key, n: 1, rules: []string{"tight"}})
		b.now.Add(20_000)
	}
	for _, rule := range []string{"", "tight", manyRules()[199].Name} {
		q := explain.Query{Key: []byte(key), Rule: rule}
		plan, f := b.explainer.Plan(t.Context(), &q)
		if f != nil {
			t.Fatal(f)
		}
		text, f := plan.Append(t.Context(), nil, 1<<30)
		if f != nil {
			t.Fatal(f)
		}
		if n := int64(len(text)); n > plan.Bytes() || rule == "" && n < plan.Bytes()/8 {
			t.Errorf("rule %q: %d bytes, planned %d", rule, n, plan.Bytes())
		}
	}
}

// TestTooLongAnswersAreRefused: an answer that is longer than it may be ends within a step.
func TestTooLongAnswersAreRefused(t *testing.T) {
	b := newBed(t, manyRules())
	plan, f := b.explainer.Plan(t.Context(), &explain.Query{Key: []byte("k")})
	if f != nil {
		t.Fatal(f)
	}
	text, f := plan.Append(t.Context(), nil, 10<<10)
	if f == nil || f.Field != "rule" || int64(len(text)) > plan.Bytes()/2 {
		t.Errorf("%d bytes, %v", len(text), f)
	}
}
