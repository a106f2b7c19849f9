package backtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

// kept is a cluster with events of some keys in two namespaces, by "NS KEY". A key that begins with
// "?" can't be read.
type kept struct {
	ladder  *leaparray.Ladder
	views   map[string]leaparray.View
	refused []twotier.KeyCount
	asked   []string // namespaces
	fails   error
	sampled int  // the number of keys in a sample; 0: all
	skewed  bool // of samples
}

func (k *kept) count(name string, n int) {
	v := leaparray.View{Ladder: k.ladder, Now: noon}
	for range n {
		add(&v, noon)
	}
	k.views[name] = v
}

func (k *kept) Busiest(_ context.Context, namespaces []string, n int,
	window int64) (keys []twotier.KeyCount, silent []string, err error) {
	k.asked = namespaces
	for name, v := range k.views {
		ns, key, _ := strings.Cut(name, " ")
		if e, _ := v.Count(window, noon, true); slices.Contains(namespaces, ns) {
			keys = append(keys, twotier.KeyCount{NS: ns, Key: key, Count: e.Count})
		}
	}
	slices.SortFunc(keys, func(a, b twotier.KeyCount) int { return int(b.Count - a.Count) })
	return keys[:min(n, len(keys))], []string{"n2"}, k.fails
}

func (k *kept) TopRefused(context.Context, int, int64) ([]twotier.KeyCount, error) {
	return k.refused, nil
}

// Sample returns the first keys in the order of their names.
func (k *kept) Sample(_ context.Context, ns string, n int) (s backtest.Sample, err error) {
	for _, name := range slices.Sorted(maps.Keys(k.views)) {
		if of, key, _ := strings.Cut(name, " "); of == ns {
			s.Keys = append(s.Keys, twotier.KeyCount{NS: ns, Key: key})
		}
	}
	s.Total, s.Silent, s.Skewed = int64(len(s.Keys)), []string{"n3"}, k.skewed
	if k.sampled > 0 {
		n = k.sampled
	}
	s.Keys = s.Keys[:min(n, len(s.Keys))]
	return s, k.fails
}

func (k *kept) Replay(_ context.Context, ask *backtest.ReplayRequest) (all [][]backtest.Outcome) {
	for _, key := range ask.Keys {
		var outcomes []backtest.Outcome
		for _, list := range key.Lists {
			if key.Key[0] != '?' {
				v := k.views[key.NS+" "+key.Key]
				v.Ladder, v.Now = k.ladder, noon
				outcomes = append(outcomes, backtest.Replay(v, ask.Lists[list]))
			}
		}
		all = append(all, outcomes)
	}
	return all
}

func limitsOf(most int64, windows ...string) (list []twotier.RuleLimit) {
	for _, text := range windows {
		ms := map[string]int64{"1m": 60_000, "1h": hour, "24h": 24 * hour}[text]
		list = append(list, twotier.RuleLimit{Window: ms, Max: most, Text: text})
	}
	return list
}

// TestRun replays the busiest and the most refused keys, each with the limits that a rule has for
// it.
func TestRun(t *testing.T) {
	k := &kept{ladder: ladders(t)[0], views: map[string]leaparray.View{},
		refused: []twotier.KeyCount{{NS: "default", Key: "out"}, {NS: "other", Key: "x"},
			{NS: "default", Key: "a"}}}
	for name, n := range map[string]int{"default a": 9, "default vip-1": 8, "default b": 3,
		"default ?": 7, "default idle": 1, "sms a": 5, "third a": 99} {
		k.count(name, n)
	}
	set := twotier.NewRuleSet([]twotier.Rule{
		{Name: "login", Limits: limitsOf(4, "1m", "1h"), State: twotier.RuleOff,
			Overrides: []twotier.Override{{Key: "vip-1", Limits: limitsOf(7, "1h")},
				{Prefix: "vip-", Limits: limitsOf(99, "1m")}}},
		{Name: "sms", Namespace: "sms", Limits: limitsOf(5, "24h"), State: twotier.RuleShadow},
		{Name: "none", Namespace: "empty", Limits: limitsOf(0, "1m")}})
	var rules []*twotier.Rule
	for _, name := range set.Names() {
		rules = append(rules, set.Find([]byte(name)))
	}
	// The five busiest are a, vip-1, ? and b of default, and a of sms; out is refused most.
	r, err := backtest.Run(t.Context(), k, rules, 5)
	must.Succeed(t, err)
	if got := fmt.Sprint(k.asked, r.LookedAt, r.Unread, r.Silent, r.Namespaces); got !=
		"[default empty sms] 5 1 [n2] [{default 4} {empty 0} {sms 1}]" {
		t.Errorf("looked at %s", got)
	}
	var got []string
	for _, one := range r.Rules {
		got = append(got, strings.TrimSpace(fmt.Sprintln(one.Rule, one.NS, one.State, one.LookedAt,
			one.Refusing, one.Events, one.Refused, len(one.Keys), one.LeftOut)))
	}
	if want := []string{"login default off 4 2 20 {6 6} 2 0", "none empty on 0 0 0 {0 0} 0 0",
		"sms sms shadow 1 1 5 {0 0} 1 0"}; !slices.Equal(got, want) {
		t.Errorf("rules\n%q, want\n%q", got, want)
	}
	login := r.Rules[0]
	if login.Keys[0].Key != "a" || len(login.Keys[0].Limits) != 2 || login.Keys[1].Key != "vip-1" ||
		len(login.Keys[1].Limits) != 1 || login.Keys[1].Limits[0].Max != 7 {
		t.Errorf("keys %+v", login.Keys)
	}
	if r, err = backtest.Run(t.Context(), k, rules[:1], 1); err != nil ||
		len(r.Rules[0].Keys) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunRefuses submits more rules and limits than allowed, and a source that fails.
func TestRunRefuses(t *testing.T) {
	k := &kept{ladder: ladders(t)[0]}
	one := &twotier.Rule{Name: "r", Limits: limitsOf(1, "1m")}
	wide := &twotier.Rule{Name: "w", Limits: limitsOf(1, "1m"), Overrides: []twotier.Override{
		{Key: "k", Limits: slices.Repeat(limitsOf(1, "1m"), backtest.MaxLimits+1)}}}
	for _, rules := range [][]*twotier.Rule{slices.Repeat([]*twotier.Rule{one},
		backtest.MaxRules+1),
		{wide}} {
		var invalid *twotier.InvalidError
		if _, err := backtest.Run(t.Context(), k, rules, 1); !errors.As(err, &invalid) ||
			invalid.Field != "rules" {
			t.Errorf("%d rules: %v", len(rules), err)
		}
	}
	k.fails = twotier.ErrClosed
	if _, err := backtest.Run(t.Context(), k, []*twotier.Rule{one}, 1); !errors.Is(err,
		twotier.ErrClosed) {
		t.Errorf("%v", err)
	}
}
