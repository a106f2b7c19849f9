package rule

import (
	"bytes"
	"cmp"
	"slices"
)

// MaxPrefixes bounds the overrides of a rule that are for a prefix.
const MaxPrefixes = 64

// Override is the limits of a rule for some keys, in place of the rule's own. It has a list of its
// own: other windows, and more or fewer of them.
type Override struct {
	// Key is the only key that it is for, or else Prefix is what its keys begin with.
	Key, Prefix string
	// Limits are compared in order. There is at least one.
	Limits []Limit
}

// For returns the limits for a key: those of its override, else those of the override with the
// longest prefix of the key, else the rule's own. It does not allocate.
func (r *Rule) For(key []byte) []Limit {
	if len(r.Overrides) == 0 {
		return r.Limits
	}
	if limits, ok := r.exact[string(key)]; ok {
		return limits
	}
	for i := range r.prefixes {
		if bytes.HasPrefix(key, []byte(r.prefixes[i].Prefix)) {
			return r.prefixes[i].Limits
		}
	}
	return r.Limits
}

// index prepares For.
func (r *Rule) index() {
	r.exact, r.prefixes = map[string][]Limit{}, nil
	for _, o := range r.Overrides {
		if o.Key != "" {
			r.exact[o.Key] = o.Limits
		} else {
			r.prefixes = append(r.prefixes, o)
		}
	}
	slices.SortStableFunc(r.prefixes, func(a, b Override) int {
		return cmp.Compare(len(b.Prefix), len(a.Prefix)) // the longest first
	})
}
