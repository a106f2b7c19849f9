package twotier

import (
	"bytes"
	"cmp"
	"slices"
)

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
	if len(r.Overrides) == 0 {
		return r.Limits
	}
	return r.limits.of(key, r.Limits)
}

// DistinctFor is For for the limits on different values.
func (r *Rule) DistinctFor(key []byte) []RuleLimit {
	if len(r.Overrides) == 0 {
		return r.Distinct
	}
	return r.distinct.of(key, r.Distinct)
}

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
