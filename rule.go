package twotier

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
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
	return byNamespace(s.defaults, ns)
}

func byNamespace(lists map[string][]*Rule, ns []byte) []*Rule {
	if len(ns) == 0 {
		return lists[DefaultNamespace]
	}
	return lists[string(ns)]
}

// DistinctDefaults is Defaults for additions of values.
func (s *RuleSet) DistinctDefaults(ns []byte) []*Rule {
	if s == nil {
		return nil
	}
	return byNamespace(s.distinct, ns)
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

// MaxPrefixes bounds the prefix overrides of a rule.
const MaxPrefixes = 64

// Override replaces the limits of a rule for some keys. Its lists stand alone: they may have other
// windows, and more or fewer of them.
type Override struct {
	// Key is the only key that the override applies to; if it is empty, Prefix begins all of them.
	Key, Prefix string
	// Limits and Distinct are compared in order. An empty list leaves the rule's list as it is.
	Limits, Distinct []RuleLimit
}

// For returns the limits on events for a key: the override for the key, else the override with the
// longest prefix of the key, else the rule's own limits. It does not allocate.
func (r *Rule) For(key []byte) []RuleLimit {
	return r.limits.of(key, r.Limits)
}

// DistinctFor is For for the limits on different values.
func (r *Rule) DistinctFor(key []byte) []RuleLimit { return r.distinct.of(key, r.Distinct) }

// overridden holds the overrides of one list of a rule.
type overridden struct {
	exact    map[string][]RuleLimit
	prefixes []prefixed // the longest first
}

type prefixed struct {
	prefix string
	limits []RuleLimit
}

// add adds the limits that an override has for the list, if any.
func (o *overridden) add(of *Override, limits []RuleLimit) {
	switch {
	case len(limits) == 0:
	case of.Key == "":
		o.prefixes = append(o.prefixes, prefixed{of.Prefix, limits})
	default:
		if o.exact == nil {
			o.exact = map[string][]RuleLimit{}
		}
		o.exact[of.Key] = limits
	}
}

// of returns the limits for a key: the rule's own if no override applies.
func (o *overridden) of(key []byte, own []RuleLimit) []RuleLimit {
	if limits, ok := o.exact[string(key)]; ok {
		return limits
	}
	for i := range o.prefixes {
		if bytes.HasPrefix(key, []byte(o.prefixes[i].prefix)) {
			return o.prefixes[i].limits
		}
	}
	return own
}

// index prepares NS, For and DistinctFor.
func (r *Rule) index() {
	r.ns = slices.Clip([]byte(r.Space()))
	r.limits, r.distinct = overridden{}, overridden{}
	for i := range r.Overrides {
		o := &r.Overrides[i]
		r.limits.add(o, o.Limits)
		r.distinct.add(o, o.Distinct)
	}
	for _, o := range []*overridden{&r.limits, &r.distinct} {
		slices.SortStableFunc(o.prefixes, func(a, b prefixed) int {
			return cmp.Compare(len(b.prefix), len(a.prefix))
		})
	}
}

// MaxRuleText bounds a document of rules, in bytes.
const MaxRuleText = 256 << 10

// MaxRuleVersions is the number of versions of the document that are kept. A new one replaces the
// oldest.
const MaxRuleVersions = 20

// ErrRulesMoved is returned for a new version whose predecessor is no longer the newest one.
var ErrRulesMoved = errors.New("the rules have changed since")

// ErrNoRuleVersion is returned for a version that never existed or is no longer kept.
var ErrNoRuleVersion = errors.New("no such version of the rules is kept")

// DocumentError lists the mistakes in a document of rules, one per line, each with its line and
// column in the document.
type DocumentError struct{ Err error }

// Error returns the mistakes.
func (e *DocumentError) Error() string { return e.Err.Error() }

// Unwrap returns the mistakes as an error.
func (e *DocumentError) Unwrap() error { return e.Err }

// RuleVersion is one version of the document of rules.
type RuleVersion struct {
	// Number counts versions from 1 on. 0 stands for rules that are in no store: the rules that a
	// node was started with while it could not reach its store, or the empty document before the
	// first version.
	Number int64
	// ID distinguishes two versions with the same number, one of which the store has lost.
	ID string
	// Text is the document as it was written, in YAML.
	Text []byte
	// Who is the author, either a token's name or a file and a node. At is when the version was
	// stored.
	Who string
	At  time.Time
}

// Shadow determines, by namespace, whether limits are judged and reported, but refuse nothing. A
// namespace that is not listed is like DefaultNamespace; if that is not listed either, its limits
// refuse.
type Shadow map[string]bool

// In reports whether the limits of a namespace refuse nothing. An empty namespace is the default
// one.
func (s Shadow) In(ns []byte) bool {
	if in, listed := s[string(ns)]; listed {
		return in
	}
	return s[DefaultNamespace]
}

// PutInShadow puts the rules of namespaces in shadow into shadow, except rules that are off. Call
// it before the set is in use.
func (s *RuleSet) PutInShadow(shadow Shadow) {
	for _, r := range s.byName {
		if r.State == RuleOn && shadow.In([]byte(r.Space())) {
			r.State = RuleShadow
		}
	}
}
