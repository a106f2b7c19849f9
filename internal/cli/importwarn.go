package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/imports"
)

// namespace returns the namespace that counts the events.
func (f *importFlags) namespace() string { return cmp.Or(f.ns, config.DefaultNamespace) }

// warnings returns what is probably not meant. judged are the namespaces with rules.
func (f *importFlags) warnings(from, to *imports.Pattern, judged []string) (list []string) {
	if name := from.Merges(to); name != "" {
		list = append(list, fmt.Sprintf("--as has no {%s}: keys that differ only there become one",
			name))
	}
	if len(judged) > 0 && !slices.Contains(judged, f.namespace()) {
		names := strings.Join(judged[:min(len(judged), mostNamespaces)], ", ")
		if more := len(judged) - mostNamespaces; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, fmt.Sprintf("no rule counts in namespace %s; rules count in: %s (--ns)",
			f.namespace(), names))
	}
	return list
}

// contentWarnings returns what is probably not meant in the content of the keys.
func contentWarnings(r *imports.Report) (list []string) {
	if r.Held > 0 {
		list = append(list, fmt.Sprintf("the keys of %s live longer than --window: these count "+
			"from now on", countOf(int(r.Held), "event")))
	}
	if r.TimeKeys > 0 {
		list = append(list, fmt.Sprintf("a time is in %s, such as %s, which counts no events; "+
			"make --pattern narrower", countOf(int(r.TimeKeys), "key"),
			quoteUnprintable(r.TimeKey)))
	}
	return list
}

// mostNamespaces is how many namespaces a warning lists.
const mostNamespaces = 10

// ruleNamespaces lists the namespaces of the rules in force, none if they can't be read.
func (s *session) ruleNamespaces(ctx context.Context) (list []string) {
	answer, _, err := s.readRules(ctx, 0, "application/json")
	var rules struct {
		Domain string // of a document of envoyproxy/ratelimit
		Rules  []struct{ Namespace string }
	}
	if err != nil || json.Unmarshal(answer.body, &rules) != nil {
		return nil
	}
	if rules.Domain != "" {
		list = append(list, rules.Domain)
	}
	for _, r := range rules.Rules {
		list = append(list, cmp.Or(r.Namespace, config.DefaultNamespace))
	}
	slices.Sort(list)
	return slices.Compact(list)
}
