package twotier

import (
	"cmp"
	"fmt"
	"slices"
)

// RuleState determines whether a rule is judged and whether it refuses.
type RuleState uint8

// The states of a rule.
const (
	// RuleOn marks a rule that refuses.
	RuleOn RuleState = iota
	// RuleShadow marks a rule that is judged and whose verdict is reported, but that never refuses.
	RuleShadow
	// RuleOff marks a rule that is not judged.
	RuleOff
)

// states are the names of the states, in their order.
var states = [...]string{"on", "shadow", "off"}

// String returns "on", "shadow" or "off".
func (s RuleState) String() string { return states[s] }

// ParseRuleState reads what String returns.
func ParseRuleState(text string) (RuleState, error) {
	i := slices.Index(states[:], text)
	if i < 0 {
		return 0, fmt.Errorf("%q is not one of on, shadow and off", text)
	}
	return RuleState(i), nil
}

// Unlimited is the Max of a limit that refuses nothing. It is far beyond any count of a key, and
// small enough that adding a count to it does not overflow.
const Unlimited = 1 << 53

// MaxDistinct bounds the limits on different values that judge one request.
const MaxDistinct = 64

// RuleLimit is one limit of a rule: at most Max events, or different values, in any Window, or at
// most Max events in each Period.
type RuleLimit struct {
	// Window is in milliseconds, at least 1; 0 if there is a Period.
	Window int64
	Max    int64
	// Text is the window as the rule spells it, such as 24h; of a period, its short form.
	Text   string
	Period *Period
}

// Longest returns the length of the limit's longest window, in milliseconds.
func (l *RuleLimit) Longest() int64 {
	of := Limit{Window: l.Window, Period: l.Period}
	return of.Longest()
}

// Rule is a named list of limits.
type Rule struct {
	// Name is unique in a [RuleSet].
	Name string
	// Namespace is the namespace of the keys that the rule judges; "" means the default one.
	Namespace string
	// Limits are on events, Distinct on the number of different values of a key. Each list is
	// compared in order. One of them may be empty: the rule then judges only events, or only
	// values.
	Limits, Distinct []RuleLimit
	// Concurrent is how many leases of a key may be open at the same time; 0 means any number. The
	// rule may have no other limit.
	Concurrent int64
	State      RuleState
	// Ban is how long, in milliseconds, the rule keeps refusing a key that its Limits have refused
	// once, if the rule is on; 0 means no ban.
	Ban int64
	// Warn is the percentage of each limit's Max, 1 to 100, from which a count that the limit
	// allows is near it; 0 means no warnings.
	Warn int64
	// Charge makes every acquire that the rule judges count, even if it is refused, see Op.Charge.
	Charge bool
	// Overrides are other limits for some keys, see For.
	Overrides []Override
	// Default applies the rule to every acquire, and every addition of values now, that names
	// neither limits nor rules in the rule's namespace.
	Default bool

	limits, distinct overridden // by Overrides
	ns               []byte     // Space, once the rule is in a RuleSet
}

// Space returns the namespace that the rule counts in.
func (r *Rule) Space() string { return cmp.Or(r.Namespace, DefaultNamespace) }

// NS returns Space in the form of Check.NS. Callers share the bytes of a rule in a [RuleSet], and
// must not change them.
func (r *Rule) NS() []byte {
	if r.ns == nil {
		return []byte(r.Space())
	}
	return r.ns
}

// Enforced returns the Max to decide with for a limit of r: the limit's own if r is on, and
// [Unlimited] otherwise.
func (r *Rule) Enforced(l RuleLimit) int64 {
	if r.State != RuleOn {
		return Unlimited
	}
	return l.Max
}

// JudgesEvents reports whether the rule judges acquires, and not only values.
func (r *Rule) JudgesEvents() bool { return len(r.Limits) > 0 || r.Concurrent > 0 }

// Bans reports whether the rule bans the keys that it refuses.
func (r *Rule) Bans() bool { return r.Ban > 0 && r.State == RuleOn }

// IsNear reports whether a count reaches the warning level of a limit of r with this Max: Warn
// percent of it, rounded up. It does so whether the limit allows the count or refuses.
func (r *Rule) IsNear(count, most int64) bool {
	return r.Warn > 0 && count >= (most*r.Warn+99)/100
}

// Charges reports whether the rule makes refused acquires count.
func (r *Rule) Charges() bool { return r.Charge && r.State == RuleOn }

// PolicyName returns the name in headers of limit i of the rule's limits for a key: the name of the
// rule, followed by the window if there are several limits.
func (r *Rule) PolicyName(limits []RuleLimit, i int) string {
	if len(limits) == 1 {
		return r.Name
	}
	return r.Name + "/" + limits[i].Text
}

// Banned is a key that a rule has banned.
type Banned struct{ NS, Rule, Key string }

// RuleSet holds rules by name. The zero value is empty.
type RuleSet struct {
	byName   map[string]*Rule
	defaults map[string][]*Rule // by namespace: default rules with Limits
	distinct map[string][]*Rule // by namespace: default rules with Distinct
	version  int64
}

// NewRuleSet returns a set of rules. Of two rules with one name it keeps the first.
func NewRuleSet(rules []Rule) *RuleSet {
	s := &RuleSet{byName: make(map[string]*Rule, len(rules)), defaults: map[string][]*Rule{},
		distinct: map[string][]*Rule{}}
	for i := range rules {
		r := &rules[i]
		if _, twice := s.byName[r.Name]; twice {
			continue
		}
		r.index()
		s.byName[r.Name] = r
		if r.Default && r.JudgesEvents() {
			s.defaults[r.Space()] = append(s.defaults[r.Space()], r)
		}
		if r.Default && len(r.Distinct) > 0 {
			s.distinct[r.Space()] = append(s.distinct[r.Space()], r)
		}
	}
	return s
}

// Defaults returns the rules that judge acquires in a namespace that name neither limits nor rules,
// in the order of the document. An empty namespace is the default one.
func (s *RuleSet) Defaults(ns []byte) []*Rule {
	if s == nil {
		return nil
	}
	if len(ns) == 0 {
		return s.defaults["default"]
	}
	return s.defaults[string(ns)]
}

// DistinctDefaults is Defaults for additions of values.
func (s *RuleSet) DistinctDefaults(ns []byte) []*Rule {
	if s == nil {
		return nil
	}
	if len(ns) == 0 {
		return s.distinct["default"]
	}
	return s.distinct[string(ns)]
}

// Numbered returns a set of the same rules with the given version of the document.
func (s *RuleSet) Numbered(version int64) *RuleSet {
	return &RuleSet{s.byName, s.defaults, s.distinct, version}
}

// Version returns the version of the document that the rules are from, or 0 if they have none.
func (s *RuleSet) Version() int64 {
	if s == nil {
		return 0
	}
	return s.version
}

// Find returns the rule with that name, or nil if there is none.
func (s *RuleSet) Find(name []byte) *Rule {
	if s == nil {
		return nil
	}
	return s.byName[string(name)]
}

// Names returns the names of all rules, sorted.
func (s *RuleSet) Names() []string {
	names := make([]string, 0, len(s.byName))
	for name := range s.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
