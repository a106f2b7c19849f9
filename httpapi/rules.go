package httpapi

import (
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// Rules resolves the names of rules.
type Rules interface {
	// Rules returns the rules in force, or nil while they are unknown. All names in one request are
	// resolved in one set.
	Rules() *twotier.RuleSet
}

// maxRules bounds the rules of one check.
const maxRules = 16

// namedLimit is a limit that comes from a rule.
type namedLimit struct {
	at     int // its index in decoder.limits
	rule   *twotier.Rule
	limits []twotier.RuleLimit // the rule's limits for the key
	index  int                 // its index in limits
}

// limit returns the limit as the rule has it.
func (r *namedLimit) limit() twotier.RuleLimit { return r.limits[r.index] }

// policy returns the name of the limit in headers and paths.
func (r *namedLimit) policy() string { return r.rule.PolicyName(r.limits, r.index) }

// origin returns the limit's origin for the counters of verdicts. A nil r is a limit without a
// rule.
func (r *namedLimit) origin() verdicts.Origin {
	if r == nil {
		return verdicts.Origin{}
	}
	return verdicts.Origin{Rule: r.rule, Max: r.limit().Max, First: r.index == 0}
}

// ruleList reads "rules": names, each of which stands for the limits of that rule.
func (d *decoder) ruleList() *problem {
	if p := d.enter('[', "a list of names of rules"); p != nil {
		return p
	}
	for i := 0; ; i++ {
		more, p := d.element(i == 0)
		if p != nil || !more {
			return p
		}
		if i == maxRules {
			return refused("", fmt.Sprintf("want at most %d rules", maxRules))
		}
		name, p := d.text()
		if p == nil {
			p = d.ruleNamed(name)
		}
		if p != nil {
			return p.in("[" + itoa(i) + "]")
		}
	}
}

// ruleNamed adds a rule to the current check. Its limits depend on the key, which may follow:
// addRules adds them.
func (d *decoder) ruleNamed(name []byte) *problem {
	r, p := d.findRule(name)
	if p != nil {
		return p
	}
	if len(d.naming) > 0 {
		if p := sameNamespace(d.naming[0], r); p != nil {
			return p
		}
	}
	d.naming = append(d.naming, r)
	return nil
}

// addRules adds the limits for the check's key of the rules that the check names; the check then
// counts in their namespace. Without names, the check belongs to an acquire and has no limits
// either, which would begin at start: the default rules of its namespace judge it.
func (d *decoder) addRules(c *twotier.Check, kind twotier.Kind, start int) *problem {
	if len(d.naming) == 0 {
		if p := d.nameDefaults(c.NS); p != nil {
			return p
		}
	}
	if len(d.naming) == 0 {
		return nil
	}
	if p := setNamespace(c, d.naming[0]); p != nil {
		return p
	}
	for i, r := range d.naming {
		if len(r.Limits) == 0 {
			return refused("rules["+itoa(i)+"]", request.OnlyDistinct(r.Name))
		}
		from := len(d.limits) - start
		if p := d.addRule(r, c.Key); p != nil {
			return p
		}
		if r.Bans() && kind == twotier.Acquire {
			d.bans = append(d.bans, twotier.BanRule{Check: len(d.checks), Rule: r.Name,
				Window: r.Ban, From: from, To: len(d.limits) - start})
			if p := d.spend(costBan); p != nil {
				return p
			}
			d.answers += answerBan
		}
	}
	return nil
}

// linkBans gives each operation the banning rules of its checks.
func (d *decoder) linkBans() {
	next := 0
	for i, f := range d.forms {
		from := next
		for ; next < len(d.bans) && d.bans[next].Check < f.first+f.count; next++ {
			d.bans[next].Check -= f.first
		}
		if next > from {
			d.ops[i].Rules = d.bans[from:next:next]
		}
	}
}

// nameDefaults names the default rules of a namespace.
func (d *decoder) nameDefaults(ns []byte) *problem {
	p := d.takeRules()
	if p == nil {
		d.naming = append(d.naming, d.inForce.Defaults(ns)...)
	}
	return p
}

// takeRules takes the rules in force for the rest of the request, unless that has been done.
func (d *decoder) takeRules() *problem {
	if d.inForce == nil && d.rules != nil {
		if d.inForce = d.rules.Rules(); d.inForce == nil {
			return &problem{kind: kindUnavailable, detail: request.RulesUnknown().Detail}
		}
	}
	return nil
}

// findRule returns the rule of that name from the set that was in force at the request's first
// name.
func (d *decoder) findRule(name []byte) (*twotier.Rule, *problem) {
	if p := d.takeRules(); p != nil {
		return nil, p
	}
	if r := d.inForce.Find(name); r != nil {
		return r, nil
	}
	return nil, refused("", `there is no rule "`+clip(name)+`"`)
}

// addRule adds the limits of a rule for a key.
func (d *decoder) addRule(r *twotier.Rule, key []byte) *problem {
	limits := r.For(key)
	for i, l := range limits {
		d.named = append(d.named, namedLimit{len(d.limits), r, limits, i})
		d.limits = append(d.limits, twotier.Limit{Window: l.Window, Max: r.Enforced(l)})
		d.texts = append(d.texts, []byte(l.Text))
	}
	d.answers += len(limits) * answerNamed
	return d.spend(len(limits) * costNamed)
}

// sameNamespace refuses two rules for one check that count in different namespaces.
func sameNamespace(a, b *twotier.Rule) *problem {
	if a.Space() == b.Space() {
		return nil
	}
	return refused("", fmt.Sprintf("rule %s counts in namespace %s and rule %s in %s; name them "+
		"in different checks or requests", a.Name, a.Space(), b.Name, b.Space()))
}

// setNamespace sets the namespace of a check that has none to its rule's, and refuses a different
// one.
func setNamespace(c *twotier.Check, r *twotier.Rule) *problem {
	if space := r.Space(); c.NS == nil {
		c.NS = []byte(space)
	} else if string(c.NS) != space {
		return refused("ns", fmt.Sprintf("rule %s counts in namespace %s; leave ns out", r.Name,
			space))
	}
	return nil
}

// ruleOf returns the rule and limit behind limit k of check j of operation i, or nil if there is
// none.
func (d *decoder) ruleOf(i, j, k int) *namedLimit {
	return d.namedAt(d.starts[d.forms[i].first+j] + k)
}

// namedAt returns the rule's limit with this index among all limits, or nil if the limit has no
// rule.
func (d *decoder) namedAt(limit int) *namedLimit {
	if n, ok := d.seekNamed(limit); ok {
		return &d.named[n]
	}
	return nil
}

// ruled reports whether rules judged operation i.
func (d *decoder) ruled(i int) bool {
	f, end := d.forms[i], len(d.limits)
	if next := f.first + f.count; next < len(d.starts) {
		end = d.starts[next]
	}
	from, _ := d.seekNamed(d.starts[f.first])
	to, _ := d.seekNamed(end)
	return to > from
}

// namedBefore returns the number of limits from rules before limit k of a check.
func (d *decoder) namedBefore(i, j, k int) int {
	if len(d.named) == 0 {
		return 0
	}
	start := d.starts[d.forms[i].first+j]
	from, _ := d.seekNamed(start)
	to, _ := d.seekNamed(start + k)
	return to - from
}

// seekNamed returns the index in d.named of the limit with this index, or where it would be.
func (d *decoder) seekNamed(limit int) (n int, ok bool) {
	return slices.BinarySearchFunc(d.named, limit, func(l namedLimit, at int) int {
		return l.at - at
	})
}
