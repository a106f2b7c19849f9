package backtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
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

// visitors is the number of keys of known traffic, of which attackers have many events.
const visitors, attackers = 2000, 2

// traffic returns the events of each key: up to 60 within some minutes, and 300 within half a
// minute for the attackers.
func traffic(rnd *rand.Rand) map[string][]int64 {
	logs := map[string][]int64{}
	for i := range visitors {
		n, length, at := 1+rnd.IntN(60), 1+rnd.Int64N(20*60_000), noon-hour-rnd.Int64N(20*hour)
		if i < attackers {
			n, length, at = 300, 30_000, noon-60_000
		}
		var events []int64
		for range n {
			events = append(events, at+rnd.Int64N(length))
		}
		slices.Sort(events)
		logs[fmt.Sprint("default user:", i)] = events
	}
	return logs
}

// peakOf returns the largest number of events in any window, by the log of events.
func peakOf(events []int64, window int64) (most int64) {
	for _, at := range events {
		most = max(most, within(events, window, at))
	}
	return most
}

// TestSuggestByAnExactLog suggests limits from the traffic of many keys, and compares the
// percentiles, the limits and the refusals with the log of all events.
func TestSuggestByAnExactLog(t *testing.T) {
	first := seed.First()
	t.Logf("TWOTIER_TEST_FIRST=%d", first)
	logs := traffic(rand.New(rand.NewPCG(first, 0)))
	k := &kept{ladder: leaparray.Default(), views: map[string]leaparray.View{}}
	for name, events := range logs {
		v := leaparray.View{Ladder: k.ladder}
		for _, ms := range events {
			add(&v, ms)
		}
		k.views[name] = v
	}
	rule := &twotier.Rule{Name: "r", Limits: limitsOf(1, "1m", "24h")}
	s, err := backtest.Suggest(t.Context(), k, []*twotier.Rule{rule}, 99.9)
	must.Succeed(t, err)
	r := s.Rules[0]
	if r.Keys != visitors || r.Examined != visitors || r.Busiest != 0 || len(r.Limits) != 2 {
		t.Fatalf("%+v", r)
	}
	var limits []twotier.Limit
	for i, l := range r.Limits {
		var peaks []int64
		for _, events := range logs {
			peaks = append(peaks, peakOf(events, rule.Limits[i].Window))
		}
		slices.Sort(peaks)
		for j, at := range []int{visitors/2 - 1, visitors/100*99 - 1, visitors - 3, visitors - 1} {
			want, got := peaks[at], l.Peaks[j]
			exact := j < 3 || l.Window == "24h" // more events than keep their millisecond
			if got.Min > want || got.Max < want || exact && got.Min != got.Max {
				t.Errorf("p%v of %s is %v, want %d", got.Percentile, l.Window, got.Bounds, want)
			}
		}
		if want := peaks[visitors-3] + 1; l.Max != want {
			t.Errorf("suggested %d/%s, want %d", l.Max, l.Window, want)
		}
		limits = append(limits, twotier.Limit{Window: rule.Limits[i].Window, Max: l.Max})
	}
	var events, refused, refusing int64
	for _, log := range logs {
		n := int64(len(refusedBy(limits, k.ladder, log, true)))
		events, refused, refusing = events+int64(len(log)), refused+n, refusing+min(n, 1)
	}
	if refusing != attackers || r.Refusing != between(refusing, refusing) {
		t.Errorf("refuses %v keys, want %d", r.Refusing, refusing)
	}
	if r.Events != events || r.Refused.Min > refused || r.Refused.Max < refused ||
		r.Refused.Min == 0 {
		t.Errorf("refused %v of %d, want %d of %d", r.Refused, r.Events, refused, events)
	}
}

// TestSuggestFromASample has percentiles of the sample alone, and figures of the busiest keys too.
// Keys with overrides count for neither.
func TestSuggestFromASample(t *testing.T) {
	k := &kept{ladder: leaparray.Default(), views: map[string]leaparray.View{}, sampled: 5}
	for name, n := range map[string]int{"default a": 1, "default b": 2, "default c": 3,
		"default d": 99, "default ?": 1, "default y": 40, "default z": 50, "sms k": 130} {
		k.count(name, n)
	}
	set := twotier.NewRuleSet([]twotier.Rule{{Name: "login", Limits: limitsOf(1, "1m"),
		Overrides: []twotier.Override{{Key: "d", Limits: limitsOf(9, "1m")}}},
		{Name: "text", Namespace: "sms", Limits: limitsOf(1, "1h")},
		{Name: "void", Namespace: "empty", Limits: limitsOf(1, "1h")},
		{Name: "devices", Distinct: limitsOf(1, "1h")}})
	var rules []*twotier.Rule
	for _, name := range []string{"login", "text", "void", "devices"} {
		rules = append(rules, set.Find([]byte(name)))
	}
	s, err := backtest.Suggest(t.Context(), k, rules, 50)
	must.Succeed(t, err)
	if got := fmt.Sprint(s.Percentile, s.Unread, s.Silent, len(s.Rules)); got !=
		"50 1 [n2 n3] 3" {
		t.Errorf("%s", got)
	}
	for i, want := range []string{
		// Of a, b and c the median is 2. The limit refuses 37 events of y, and 47 of z.
		"login 7 3 2 96 {84 84} {2 2} [{1m 3 [{50 {2 2}} {99 {3 3}} {100 {50 50}}] {84 84}}]",
		"text 1 1 0 130 {0 0} {0 0} [{1h 140 [{50 {130 130}} {99 {130 130}} {100 {130 130}}] " +
			"{0 0}}]",
		"void 0 0 0 0 {0 0} {0 0} []",
	} {
		r := &s.Rules[i]
		if got := fmt.Sprint(r.Rule, " ", r.Keys, " ", r.Examined, " ", r.Busiest, " ", r.Events,
			" ", r.Refused, " ", r.Refusing, " ", r.Limits); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestSuggestRefuses passes on the errors of a source, and refuses percentages.
func TestSuggestRefuses(t *testing.T) {
	k := &kept{ladder: leaparray.Default(), fails: twotier.ErrClosed}
	rules := []*twotier.Rule{{Name: "r", Limits: limitsOf(1, "1m")}}
	if _, err := backtest.Suggest(t.Context(), k, rules, 99); !errors.Is(err, twotier.ErrClosed) {
		t.Errorf("%v", err)
	}
	for _, percentile := range []float64{0, -1, 100.5} {
		_, err := backtest.Suggest(t.Context(), k, rules, percentile)
		if invalid, ok := errors.AsType[*twotier.InvalidError](err); !ok ||
			invalid.Field != "percentile" {
			t.Errorf("%v: %v", percentile, err)
		}
	}
	_, err := backtest.Suggest(t.Context(), k, slices.Repeat(rules, backtest.MaxRules+1), 99)
	if _, ok := errors.AsType[*twotier.InvalidError](err); !ok {
		t.Errorf("too many rules: %v", err)
	}
}

// TestRoundUp keeps two digits, and never rounds down.
func TestRoundUp(t *testing.T) {
	for n, want := range map[int64]int64{1: 1, 9: 9, 99: 99, 100: 100, 101: 110, 110: 110,
		999: 1000, 1234: 1300, 98_765_432: 99_000_000} {
		if got := backtest.RoundUp(n); got != want {
			t.Errorf("%d is rounded to %d, want %d", n, got, want)
		}
	}
}
