package explain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
)

// TestExplanationsAgreeWithAcquires makes random requests under random rules, and compares every
// explanation with dry runs at the same moment, and every refusal with its record.
func TestExplanationsAgreeWithAcquires(t *testing.T) {
	first, outcomes := seed.First(), map[string]int{}
	for i := range uint64(30) {
		rnd := rand.New(rand.NewPCG(first+i, 11))
		t.Run(fmt.Sprint("TWOTIER_TEST_FIRST=", first+i), func(t *testing.T) {
			rules := randomRules(rnd)
			w := &walk{newBed(t, rules), rules, rnd, outcomes, 0}
			for range 60 {
				w.now.Add(rnd.Int64N(15_000) / (1 + rnd.Int64N(100)))
				w.act()
				w.compare(fmt.Sprint("key", rnd.IntN(3)))
			}
		})
	}
	for _, want := range []string{"limit", "ban", "distinct", "concurrent", "allowed",
		"refused rule", "refused request"} {
		if outcomes[want] < 10 {
			t.Errorf("%d of %q: the test has lost its meaning", outcomes[want], want)
		}
	}
}

// randomLimits returns one to three limits.
func randomLimits(rnd *rand.Rand, period bool) (list []twotier.RuleLimit) {
	for _, i := range rnd.Perm(5)[:1+rnd.IntN(3)] {
		l := twotier.RuleLimit{Window: []int64{1000, 10_000, 60_000, 90_000, 3_600_000}[i],
			Max: 1 + rnd.Int64N(5)}
		l.Text = twotier.FormatMillis(l.Window)
		if period && rnd.IntN(5) == 0 {
			monthly, _ := twotier.ParsePeriod("hour@Asia/Kolkata")
			l.Window, l.Period, l.Text = 0, monthly, monthly.String()
		}
		list = append(list, l)
	}
	return list
}

// randomRules returns rules of each kind, in random states.
func randomRules(rnd *rand.Rand) (rules []twotier.Rule) {
	for i := range 6 {
		r := twotier.Rule{Name: fmt.Sprint("rule", i)}
		switch i {
		case 3:
			r.Concurrent = 1 + rnd.Int64N(3)
		case 4:
			r.Distinct = randomLimits(rnd, false)
		default:
			r.Limits = randomLimits(rnd, true)
		}
		if i == 1 {
			r.Ban = 1 + rnd.Int64N(30_000)
		}
		if i == 2 {
			r.Limits[0].Max = rnd.Int64N(2)
		}
		if rnd.IntN(5) == 0 {
			r.State = twotier.RuleState(rnd.IntN(3))
		}
		rules = append(rules, r)
	}
	return rules
}

// walk is one random story.
type walk struct {
	*bed
	rules    []twotier.Rule
	rnd      *rand.Rand
	outcomes map[string]int
	values   int
}

// act makes a random request, and checks the record of its refusal.
func (w *walk) act() {
	w.t.Helper()
	s := step{key: fmt.Sprint("key", w.rnd.IntN(3)), n: w.rnd.Int64N(3)}
	switch kind := w.rnd.IntN(10); {
	case kind == 0:
		w.addNewValue(s.key)
		return
	case kind == 1:
		s.rules, s.hold = []string{"rule3"}, 1+w.rnd.Int64N(20_000)
	case kind < 4:
		for _, l := range randomLimits(w.rnd, true) {
			s.limits = append(s.limits, twotier.Limit{Window: l.Window, Max: l.Max,
				Period: l.Period})
		}
	default:
		for _, i := range w.rnd.Perm(4)[:1+w.rnd.IntN(2)] {
			s.rules = append(s.rules, []string{"rule0", "rule1", "rule2", "rule5"}[i])
		}
	}
	res, id := w.acquire(s)
	if res.Allowed != id.IsZero() && s.n+s.hold > 0 {
		w.t.Fatalf("%+v: allowed %v, id %s", s, res.Allowed, id)
	}
	if id.IsZero() {
		w.outcomes["allowed"]++
		return
	}
	f := w.explain(explain.Query{ID: id.String()}).Refusal
	w.outcomes[f.Reason]++
	if f.Key != s.key || f.NS != "default" || f.N != s.n || f.At != w.now.Load() ||
		f.Rule != "" && (f.Version != 7 || !slices.Contains(s.rules, f.Rule)) ||
		f.Rule == "" != (s.limits != nil) || !w.justifies(res, f) {
		w.t.Errorf("%+v: %+v, recorded %+v", s, res, f)
	}
}

// justifies reports whether a record names what refused in a result.
func (w *walk) justifies(res *twotier.Result, f *refusallog.Refusal) bool {
	switch f.Reason {
	case "limit":
		return slices.ContainsFunc(res.Checks[0].Limits, func(l twotier.LimitResult) bool {
			window := twotier.FormatMillis(l.Window)
			if l.Period != nil {
				window = l.Period.String()
			}
			return l.Refused && window == f.Window && l.Max == f.Limit && l.Count == f.Count
		}) && f.RetryAfter == res.Checks[0].RetryAfter
	case "ban":
		return slices.ContainsFunc(res.Bans, func(b twotier.BanResult) bool {
			return b.Rule == f.Rule && b.Until == f.Until && !b.Started
		})
	case "concurrent":
		return slices.ContainsFunc(res.Leases, func(l twotier.LeaseResult) bool {
			return l.Refused && l.Rule == f.Rule && l.Open == f.Count && l.Max == f.Limit
		})
	}
	return false
}

// addNewValue adds a new value, and compares the verdict with the one of an explanation before.
func (w *walk) addNewValue(key string) {
	w.t.Helper()
	if w.rules[4].State == twotier.RuleOff {
		return
	}
	before := w.explain(explain.Query{Key: []byte(key), Rule: "rule4"}).Rules[0]
	w.values++
	res, id := w.addValues(key, "rule4", fmt.Sprint("value", w.values))
	if res.Allowed != before.Passes || res.Allowed != id.IsZero() {
		w.t.Errorf("%s: explained %+v, then %+v with id %v", key, before, res, id)
	}
	if id.IsZero() {
		return
	}
	a := w.explain(explain.Query{ID: id.String()})
	w.outcomes[a.Refusal.Reason]++
	if f := a.Refusal; f.Reason != "distinct" || f.Rule != "rule4" ||
		!slices.ContainsFunc(w.rules[4].Distinct, func(l twotier.RuleLimit) bool {
			return l.Text == f.Window && l.Max == f.Limit && f.Count == l.Max
		}) || f.RetryAfter != res.RetryAfter {
		w.t.Errorf("%+v of %+v", f, w.rules[4])
	}
	if after := a.Rules[len(w.rules)-2]; after.Passes ||
		after.PassesAt != w.now.Load()+res.RetryAfter {
		w.t.Errorf("%+v, want to pass in %d", after, res.RetryAfter)
	}
}

// compare compares the explanation of a key with a dry run of each rule, and of the limits without
// a rule.
func (w *walk) compare(key string) {
	w.t.Helper()
	for _, r := range w.explain(explain.Query{Key: []byte(key)}).Rules {
		w.compareBuckets(key, &r)
		s := step{key: key, n: 1, dryRun: true}
		who := "rule"
		switch {
		case r.Distinct != nil:
			continue // see addNewValue
		case r.Concurrent != nil:
			s.n, s.hold = 0, 1000
		}
		if s.rules = []string{r.Rule}; r.Rule == "" {
			who, s.rules = "request", nil
			for _, l := range r.Windows {
				limit := twotier.Limit{Max: l.Limit}
				if period, err := twotier.ParsePeriod(l.Window); err == nil {
					limit.Period = period
				} else {
					limit.Window = millis(w.t, l.Window)
				}
				s.limits = append(s.limits, limit)
			}
		}
		res, id := w.acquire(s)
		if !r.Passes {
			w.outcomes["refused "+who]++
		}
		at := int64(0)
		if res.RetryAfter > 0 {
			at = w.now.Load() + res.RetryAfter
		}
		if r.Passes != res.Allowed || r.PassesAt != at || r.Never != (res.RetryAfter < 0) ||
			!id.IsZero() {
			w.t.Errorf("%s: %+v, the dry run %+v", key, r, res)
		}
		for k, l := range r.Windows {
			judged, counted := res.Checks[0].Limits[k], l.Count
			if res.Allowed {
				counted++
			}
			if judged.Count != counted || l.Min > l.Count || l.Max < l.Count ||
				l.Remaining != max(0, l.Limit-l.Count) {
				w.t.Errorf("%s: %+v, the dry run %+v", key, l, judged)
			}
		}
	}
}

// compareBuckets compares the buckets of windows with their counts.
func (w *walk) compareBuckets(key string, r *explain.Rule) {
	w.t.Helper()
	for _, l := range r.Windows {
		sum := int64(0)
		for i, b := range l.Buckets {
			sum += b.Count
			if b.Count < 1 || i > 0 && b.Count > l.Buckets[i-1].Count {
				w.t.Errorf("%s: buckets %+v", key, l.Buckets)
			}
		}
		if sum > l.Max || len(l.Buckets) < 5 && sum < l.Min {
			w.t.Errorf("%s: %d events in the buckets of %+v", key, sum, l)
		}
	}
}

// millis reads a duration.
func millis(t *testing.T, text string) int64 {
	t.Helper()
	for _, ms := range []int64{1000, 10_000, 60_000, 90_000, 3_600_000} {
		if twotier.FormatMillis(ms) == text {
			return ms
		}
	}
	must.Succeed(t, fmt.Errorf("window %q", text))
	return 0
}
