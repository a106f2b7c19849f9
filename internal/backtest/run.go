package backtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
)

// Bounds of one backtest, see [Run].
const (
	// MaxTop is the largest number of keys in each of the three lists.
	MaxTop = 1000
	// MaxRules bounds the rules, and MaxLimits the limits of all of them together.
	MaxRules  = 32
	MaxLimits = 64
)

// recent is the window of the second list of busy keys, in milliseconds.
const recent = int64(time.Minute / time.Millisecond)

// Source reads the counts of a cluster.
type Source interface {
	// Busiest returns up to n keys of some namespaces with the largest counts over a window in
	// milliseconds, and the nodes that did not answer.
	Busiest(ctx context.Context, namespaces []string, n int,
		window int64) (keys []twotier.KeyCount, silent []string, err error)
	// TopRefused returns up to n keys of any namespaces that refused the most acquires.
	TopRefused(ctx context.Context, n int, window int64) ([]twotier.KeyCount, error)
	// Sample returns a uniform sample of up to n keys of a namespace with events in the last day.
	Sample(ctx context.Context, namespace string, n int) (Sample, error)
	// Replay returns, for each key, one outcome per list of limits, or nil if the key could not be
	// read before ctx was done.
	Replay(ctx context.Context, ask *ReplayRequest) [][]Outcome
}

// ReplayRequest lists the keys that a [Source] replays, and the lists of limits that each key
// indexes.
type ReplayRequest struct {
	Lists [][]twotier.Limit
	Keys  []Key
}

// Key is a key to replay.
type Key struct {
	NS, Key string
	Lists   []int
}

// Report is the result of a backtest.
type Report struct {
	// LookedAt is the number of keys read, in Namespaces; Unread counts the keys that could not be
	// read. Silent are the nodes that did not report their keys.
	LookedAt   int         `json:"looked_at"`
	Unread     int         `json:"unread"`
	Silent     []string    `json:"silent,omitempty"`
	Namespaces []Namespace `json:"namespaces"`
	// Rules has one element for each rule.
	Rules []RuleReport `json:"rules"`
}

// Namespace is the number of keys read in a namespace.
type Namespace struct {
	NS       string `json:"ns"`
	LookedAt int    `json:"looked_at"`
}

// RuleReport is the effect that a rule would have if it were on.
type RuleReport struct {
	Rule  string `json:"rule"`
	NS    string `json:"ns"`
	State string `json:"state"`
	// Distinct marks a rule with limits on different values, which are not replayed: the figures
	// cover its other limits, and there are none if it has no others.
	Distinct bool `json:"distinct,omitempty"`
	LookedAt int  `json:"looked_at"`
	// Refusing is the number of these keys that the rule would refuse now.
	Refusing int `json:"refusing"`
	// Events is their number of events in the last day, and Refused the number of these that the
	// rule would have refused.
	Events  int64  `json:"events"`
	Refused Bounds `json:"refused"`
	// Keys are the keys that the rule would refuse now, followed by the other keys with possible
	// refusals. LeftOut counts the keys dropped for lack of room.
	Keys    []KeyReport `json:"keys"`
	LeftOut int         `json:"left_out"`

	rule *twotier.Rule
}

// Run reports what rules would do to the busiest keys of their namespaces, in the last day and in
// the last minute, and to the most refused ones: up to top of each list. It changes nothing. More
// than [MaxRules] rules or [MaxLimits] limits are an *twotier.InvalidError.
func Run(ctx context.Context, from Source, rules []*twotier.Rule, top int) (*Report, error) {
	if err := checkSize(rules); err != nil {
		return nil, err
	}
	r := &Report{Namespaces: []Namespace{}, Rules: []RuleReport{}}
	for _, one := range rules {
		r.Rules = append(r.Rules, RuleReport{Rule: one.Name, NS: one.Space(),
			State: one.State.String(), Distinct: len(one.Distinct) > 0, Keys: []KeyReport{},
			rule: one})
	}
	keys, err := r.findKeys(ctx, from, top)
	if err != nil {
		return nil, err
	}
	plan := newPlan(rules, keys)
	for i, outcomes := range from.Replay(ctx, &plan.ask) {
		r.add(&plan.ask.Keys[i], plan.rules[i], outcomes)
	}
	for i := range r.Rules {
		r.Rules[i].finish(top)
	}
	return r, nil
}

// checkSize refuses more rules or limits than one backtest may have.
func checkSize(rules []*twotier.Rule) error {
	limits := 0
	for _, r := range rules {
		most := len(r.Limits)
		for _, o := range r.Overrides {
			most = max(most, len(o.Limits))
		}
		limits += most
	}
	if len(rules) > MaxRules || limits > MaxLimits {
		return &twotier.InvalidError{Check: -1, Limit: -1, Field: "rules", Detail: fmt.Sprintf(
			"%d rules with %d limits; want at most %d with %d: name some of them", len(rules),
			limits, MaxRules, MaxLimits)}
	}
	return nil
}

func (r *Report) findKeys(ctx context.Context, from Source, top int) ([]twotier.KeyCount, error) {
	var names []string
	for i := range r.Rules {
		ns, limits := r.Rules[i].NS, r.Rules[i].rule.Limits
		if len(limits) > 0 && !slices.Contains(names, ns) {
			names = append(names, ns)
		}
	}
	if len(names) == 0 { // there is nothing to replay
		return nil, nil
	}
	slices.Sort(names)
	for _, ns := range names {
		r.Namespaces = append(r.Namespaces, Namespace{NS: ns})
	}
	var lists []twotier.KeyCount
	for _, window := range []int64{day, recent} {
		keys, silent, err := from.Busiest(ctx, names, top, window)
		if err != nil {
			return nil, err
		}
		lists = append(lists, keys...)
		r.Silent = append(r.Silent, silent...)
	}
	refused, err := from.TopRefused(ctx, top, day)
	if err != nil {
		return nil, err
	}
	slices.Sort(r.Silent)
	r.Silent = slices.Compact(r.Silent)
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(append(lists, refused...), func(k twotier.KeyCount) bool {
		name := [2]string{k.NS, k.Key}
		twice := seen[name]
		seen[name] = true
		return twice || !slices.Contains(names, k.NS)
	}), nil
}

// plan is a request to a source.
type plan struct {
	ask   ReplayRequest
	rules [][]int // for each key, the rule of each of its lists
}

func newPlan(rules []*twotier.Rule, keys []twotier.KeyCount) (p plan) {
	lists := map[*twotier.RuleLimit]int{} // by their first limit
	for _, k := range keys {
		key := Key{NS: k.NS, Key: k.Key}
		var of []int
		for i, r := range rules {
			if r.Space() != k.NS || len(r.Limits) == 0 {
				continue
			}
			limits := r.For([]byte(k.Key))
			at, known := lists[&limits[0]]
			if !known {
				at = len(p.ask.Lists)
				lists[&limits[0]] = at
				p.ask.Lists = append(p.ask.Lists, convertLimits(limits))
			}
			key.Lists = append(key.Lists, at)
			of = append(of, i)
		}
		p.ask.Keys = append(p.ask.Keys, key)
		p.rules = append(p.rules, of)
	}
	return p
}

func convertLimits(limits []twotier.RuleLimit) (list []twotier.Limit) {
	for _, l := range limits {
		list = append(list, twotier.Limit{Window: l.Window, Max: l.Max, Period: l.Period})
	}
	return list
}

// KeyReport is the effect that a rule would have on a key.
type KeyReport struct {
	Key string `json:"key"`
	// Refuses reports whether the rule would refuse an acquire for one event now.
	Refuses bool `json:"refuses"`
	// From is the beginning of the first bucket of the last day that has events, in unix
	// milliseconds. Events is the number of events since.
	From   int64 `json:"from"`
	Events int64 `json:"events"`
	// Refused is the number of these events that the rule would have refused.
	Refused Bounds `json:"refused"`
	// Limits are the rule's limits for this key.
	Limits []LimitReport `json:"limits"`
}

// LimitReport is a limit and its effect on a key.
type LimitReport struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
	LimitOutcome
}

// add adds the outcomes of rules, by index, for a key. There are none if it could not be read.
func (r *Report) add(key *Key, rules []int, outcomes []Outcome) {
	if len(outcomes) != len(rules) {
		r.Unread++
		return
	}
	r.LookedAt++
	at := slices.IndexFunc(r.Namespaces, func(n Namespace) bool { return n.NS == key.NS })
	r.Namespaces[at].LookedAt++
	for i := range outcomes {
		r.Rules[rules[i]].add(key.Key, &outcomes[i])
	}
}

func (r *RuleReport) add(key string, o *Outcome) {
	r.LookedAt++
	r.Events += o.Events
	r.Refused.add(o.Refused)
	if o.Refuses {
		r.Refusing++
	}
	if o.Refuses || o.Refused.Max > 0 {
		k := KeyReport{Key: key, Refuses: o.Refuses, From: o.From, Events: o.Events,
			Refused: o.Refused}
		for i, l := range r.rule.For([]byte(key)) {
			k.Limits = append(k.Limits, LimitReport{l.Text, l.Max, o.Limits[i]})
		}
		r.Keys = append(r.Keys, k)
	}
}

// finish sorts the keys and drops all beyond top.
func (r *RuleReport) finish(top int) {
	first := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	slices.SortFunc(r.Keys, func(a, b KeyReport) int {
		return cmp.Or(cmp.Compare(first(a.Refuses), first(b.Refuses)),
			cmp.Compare(b.Refused.Min, a.Refused.Min), cmp.Compare(b.Refused.Max, a.Refused.Max),
			cmp.Compare(b.Events, a.Events), cmp.Compare(a.Key, b.Key))
	})
	if n := len(r.Keys); n > top {
		r.LeftOut = n - top
		r.Keys = slices.Clip(r.Keys[:top])
	}
}
