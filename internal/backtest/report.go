package backtest

import (
	"cmp"
	"slices"

	"twotier.dev/twotier"
)

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

// add adds the rule's outcome for a key.
func (r *RuleReport) add(key string, o *Outcome) {
	r.LookedAt++
	r.Events += o.Events
	r.Refused.Min += o.Refused.Min
	r.Refused.Max += o.Refused.Max
	if o.Refuses {
		r.Refusing++
	}
	if o.Refuses || o.Refused.Max > 0 {
		r.Keys = append(r.Keys, KeyReport{Key: key, Refuses: o.Refuses, From: o.From,
			Events: o.Events, Refused: o.Refused, Limits: limitsOf(r.rule, key, o)})
	}
}

func limitsOf(r *twotier.Rule, key string, o *Outcome) (list []LimitReport) {
	for i, l := range r.For([]byte(key)) {
		list = append(list, LimitReport{l.Text, l.Max, o.Limits[i]})
	}
	return list
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
