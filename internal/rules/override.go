package rules

import (
	"fmt"
	"strings"
	"unicode"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// maxKey bounds a key, in bytes.
const maxKey = 256

// overrides reads a list such as [{key: vip-1, limits: [100/1m]}, {prefix: corp-, limits: [9/1m]}].
func (r *reader) overrides(n *strictyaml.Node) (all []twotier.Override) {
	seen, prefixes := map[string]int{}, 0
	for _, item := range r.List(n, "overrides") {
		o := r.override(item)
		which := fmt.Sprintf("key %q", o.Key)
		if o.Key == "" {
			which = fmt.Sprintf("prefix %q", o.Prefix)
			prefixes++
		}
		if line := seen[which]; line > 0 {
			r.Fail(item, "there is an override for %s already in line %d", which, line)
		}
		seen[which] = item.Line
		all = append(all, o)
	}
	if prefixes > twotier.MaxPrefixes {
		r.Fail(n, "overrides: want at most %d with a prefix", twotier.MaxPrefixes)
	}
	return all
}

// override reads one override.
func (r *reader) override(item *strictyaml.Node) (o twotier.Override) {
	var limits limitList
	has := strictyaml.Mapping{Name: "an override", Example: "key: vip-1",
		Valid: "an override has key or prefix, and limits or distinct",
		Fields: strictyaml.Fields{
			"key":      strictyaml.Parsed(&o.Key, parseKey),
			"prefix":   strictyaml.Parsed(&o.Prefix, parseKey),
			"limits":   strictyaml.Set(&limits, r.limits),
			"distinct": strictyaml.Set(&o.Distinct, r.distinct),
		}}.Read(r.Reader, item)
	if limits.concurrent > 0 {
		r.Fail(has["limits"], "limits: only the rule itself has {concurrent: %d}",
			limits.concurrent)
	}
	o.Limits = limits.windows
	if (has["key"] != nil) == (has["prefix"] != nil) ||
		has["limits"] == nil && has["distinct"] == nil {
		r.Fail(item, "an override has either key or prefix, and limits or distinct")
	}
	return o
}

// checkOverrides refuses overrides of a list that the rule lacks: the kinds of limits of a rule
// must not depend on the key.
func (r *reader) checkOverrides(one *twotier.Rule, at *strictyaml.Node, limits, distinct bool) {
	for _, o := range one.Overrides {
		switch {
		case len(o.Limits) > 0 && !limits:
			r.Fail(at, "overrides: one has limits, and rule %s has only distinct", one.Name)
		case len(o.Distinct) > 0 && !distinct:
			r.Fail(at, "overrides: one has distinct, and rule %s has only limits", one.Name)
		}
	}
}

// parseKey accepts a key or the beginning of one.
func parseKey(text string) (string, error) {
	if text == "" || len(text) > maxKey || strings.ContainsFunc(text, unicode.IsControl) {
		return text, fmt.Errorf("want 1 to %d bytes without control characters", maxKey)
	}
	return text, nil
}
