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
	r.overridesRead = r.List(n, "overrides")
	for _, item := range r.overridesRead {
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
	seen := map[string]bool{}
	strictyaml.Mapping{Name: "an override", Example: "key: vip-1",
		Each: func(key string, at, to *strictyaml.Node) {
			seen[key] = true
			switch key {
			case "key":
				o.Key = r.key(to, "key")
			case "prefix":
				o.Prefix = r.key(to, "prefix")
			case "limits":
				limits, open := r.limits(to)
				if o.Limits = limits; open > 0 {
					r.Fail(to, "limits: only the rule itself has {concurrent: %d}", open)
				}
			case "distinct":
				o.Distinct = r.distinct(to)
			default:
				r.Unknown(at, key, "an override has key or prefix, and limits or distinct")
			}
		}}.Read(r.Reader, item)
	if seen["key"] == seen["prefix"] || !seen["limits"] && !seen["distinct"] {
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

// key reads a key or the beginning of one.
func (r *reader) key(n *strictyaml.Node, what string) string {
	text, ok := r.Text(n, what)
	if ok && (text == "" || len(text) > maxKey || strings.ContainsFunc(text, unicode.IsControl)) {
		r.Fail(n, "%s: want 1 to %d bytes without control characters", what, maxKey)
	}
	return text
}
