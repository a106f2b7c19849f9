package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
	"twotier.dev/twotier/leaparray"
)

// Ladders are the ladders of namespaces. At least [config.DefaultNamespace] has one, which also
// applies to namespaces that are not listed.
type Ladders map[string]*leaparray.Ladder

// LaddersOf returns the ladders that settings define.
func LaddersOf(cfg *config.Config) (Ladders, error) {
	ladders := Ladders{}
	for name, ns := range cfg.Namespaces {
		ladder, err := ns.Ladder()
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
		ladders[name] = ladder
	}
	return ladders, nil
}

// Of returns the ladder of a namespace; "" is the default one.
func (l Ladders) Of(namespace string) *leaparray.Ladder {
	if ladder := l[namespace]; ladder != nil {
		return ladder
	}
	return l[config.DefaultNamespace]
}

// CheckWindows returns an error for each window of a document that is longer than the ladder of its
// namespace, with its line and column.
func (l Ladders) CheckWindows(doc *rules.Document) error {
	return doc.EachWindow(func(namespace string, ms int64) error {
		if span := l.Of(namespace).Span(); ms > span {
			return fmt.Errorf("a window of %s is longer than its namespace covers (%s)%s",
				twotier.FormatMillis(ms), twotier.FormatMillis(span),
				twotier.ExtensionHint(l.Of(namespace), namespace, ms))
		}
		return nil
	})
}

// Rules returns the warnings about a document, in the order of its lines for each kind.
func Rules(doc *rules.Document, ladders Ladders) (list []warning.Warning) {
	source := doc.Source()
	for _, check := range []func(*rules.Source, Ladders) []warning.Warning{
		lintCoarseWindows, lintSharedCounts, lintWeakLimits, lintWeakRules, lintOverrides,
		lintDescriptors,
	} {
		list = append(list, check(source, ladders)...)
	}
	return list
}

// lintSharedCounts warns once for each namespace in which several rules count, unless all of them
// are default rules, which judge each acquire together. A rule in shadow is ignored: it is being
// tried on the counts of another one.
func lintSharedCounts(s *rules.Source, _ Ladders) (list []warning.Warning) {
	of, order := map[string][]rules.PlacedRule{}, []string{}
	for _, r := range s.Rules {
		if r.State != twotier.RuleOn || len(r.Limits) == 0 {
			continue
		}
		if len(of[r.Space()]) == 0 {
			order = append(order, r.Space())
		}
		of[r.Space()] = append(of[r.Space()], r)
	}
	for _, namespace := range order {
		sharing := of[namespace]
		requested := func(r rules.PlacedRule) bool { return !r.Default }
		if len(sharing) < 2 || !slices.ContainsFunc(sharing, requested) {
			continue
		}
		names := make([]string, len(sharing))
		for i, r := range sharing {
			names[i] = r.Name
		}
		list = append(list, warning.Warning{Code: warning.SharedCounts, At: sharing[1].At,
			Reason: fmt.Sprintf("%s count in namespace %s: what a request counts for one of them "+
				"counts for the others, too, if the key is the same", enumerate(names), namespace),
			Instead: "a namespace for each thing that is counted, such as namespace: " +
				sharing[1].Name + "; leave it if one request names all of them"})
	}
	return list
}

// enumerate formats names such as "rules a, b and c".
func enumerate(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("rules %s and %d more", strings.Join(names[:most], ", "), more)
	}
	last := len(names) - 1
	return fmt.Sprintf("rules %s and %s", strings.Join(names[:last], ", "), names[last])
}

// isImplied reports whether a limit never refuses because a stricter one always refuses first: one
// with at most as many events in a window at least as long. A calendar window begins anew where
// others go on, so that it implies only itself.
func isImplied(l, stricter twotier.RuleLimit) bool {
	if stricter.Max > l.Max {
		return false
	}
	if stricter.Period != nil {
		return stricter.Period == l.Period
	}
	return stricter.Window >= l.Longest()
}

// lintWeakLimits warns about limits that another limit of the same rule or override implies.
func lintWeakLimits(s *rules.Source, _ Ladders) (list []warning.Warning) {
	for i, l := range s.Limits {
		if l.Rule == "" {
			continue
		}
		for j, o := range s.Limits {
			together := o.Rule == l.Rule && o.Distinct == l.Distinct && o.List == l.List
			same := o.Max == l.Max && o.Window == l.Window && o.Period == l.Period
			if i == j || !together || !isImplied(l.RuleLimit, o.RuleLimit) || same && i < j {
				continue
			}
			list = append(list, warning.Warning{Code: warning.NeverRefuses, At: l.At,
				Reason: fmt.Sprintf("%s of rule %s never refuses anything: %s beside it refuses "+
					"before", formatLimit(l.RuleLimit), l.Rule, formatLimit(o.RuleLimit)),
				Instead: fmt.Sprintf("remove %s, or make one of the two a different limit",
					formatLimit(l.RuleLimit))})
			break
		}
	}
	return list
}

// lintWeakRules warns about default rules whose limits are all implied by another default rule of
// the namespace. Rules that requests name are exempt because they may be named separately, and
// rules with overrides because they may differ by key.
func lintWeakRules(s *rules.Source, _ Ladders) (list []warning.Warning) {
	for i, r := range s.Rules {
		for j, o := range s.Rules {
			together := r.Default && o.Default && r.Space() == o.Space() && i != j
			plain := len(r.Overrides) == 0 && len(o.Overrides) == 0
			if !together || !plain || r.State == twotier.RuleOff || o.State != twotier.RuleOn ||
				len(r.Limits) == 0 || len(r.Distinct) > 0 || !allImplied(r.Limits, o.Limits) ||
				r.State == twotier.RuleOn && i < j && allImplied(o.Limits, r.Limits) {
				continue
			}
			list = append(list, warning.Warning{Code: warning.NeverRefuses, At: r.At,
				Reason: fmt.Sprintf("rule %s never refuses anything: rule %s of the same "+
					"namespace is as strict or stricter, and judges every acquire, too",
					r.Name, o.Name),
				Instead: "remove it, make it stricter, or give it a namespace of its own"})
			break
		}
	}
	return list
}

func allImplied(limits, stricter []twotier.RuleLimit) bool {
	return !slices.ContainsFunc(limits, func(l twotier.RuleLimit) bool {
		return !slices.ContainsFunc(stricter, func(o twotier.RuleLimit) bool {
			return isImplied(l, o)
		})
	})
}

// secrets are the lower-case names of descriptors whose values are credentials.
var secrets = [...]string{"authorization", "proxy-authorization", "cookie", "x-api-key"}

// lintDescriptors warns about descriptors that match nothing, or whose values are credentials, and
// about keys without an effect.
func lintDescriptors(s *rules.Source, _ Ladders) (list []warning.Warning) {
	for _, d := range s.Descriptors {
		if d.HasDeadStar() {
			list = append(list, warning.Warning{Code: warning.DeadWildcard, At: d.At,
				Reason: fmt.Sprintf("key %s: without a value, the text behind the last star is "+
					"compared with the end of a request's value, so this probably matches nothing",
					d.Key),
				Instead: "a star at the end of the key, or value: \"*\" beside it"})
		}
		name := strings.ReplaceAll(strings.ToLower(d.Key), "_", "-")
		if d.Value == "" && slices.Contains(secrets[:], name) {
			list = append(list, warning.Warning{Code: warning.SecretKey, At: d.At,
				Reason: fmt.Sprintf("the values of descriptor %s are keys, which are in Redis, "+
					"/v1/top and the decision log as they are, and these may be credentials",
					d.Key),
				Instead: "an identity that is no secret, such as a user's ID that Envoy has " +
					"verified (metadata of jwt_authn)"})
		}
	}
	for _, k := range s.Ignored {
		list = append(list, warning.Warning{Code: warning.NoEffect, At: k.At,
			Reason:  fmt.Sprintf("%s has no effect (places: %d): %s", k.Key, k.Places, k.Reason),
			Instead: "remove it, unless another program reads the file"})
	}
	return list
}

// formatLimit formats a limit as in documents, such as 15/1m.
func formatLimit(l twotier.RuleLimit) string { return fmt.Sprintf("%d/%s", l.Max, l.Text) }

// clientBits is the length of the part of an IPv6 address that is the key of a client.
const clientBits = 64

// lintOverrides warns about overrides for addresses and networks that are never the key of a
// client's address: for /v1/forward-auth that key is an IPv4 address or the /64 network of an IPv6
// address.
func lintOverrides(s *rules.Source, _ Ladders) (list []warning.Warning) {
	for _, o := range s.Overrides {
		text := o.Key + o.Prefix // one of them is empty
		key, single := clientKey(text)
		if key == "" || o.Key == key {
			continue
		}
		w := warning.Warning{Code: warning.OverrideNeverMatches, At: o.At,
			Instead: fmt.Sprintf("key: %q", key)}
		switch {
		case !single:
			w.Reason = fmt.Sprintf("an override of rule %s for the network %s: keys are compared "+
				"as text, and none is a network of that size", o.Rule, text)
			w.Instead = "a prefix of the text of its addresses, such as prefix: \"10.1.\", or " +
				"one key for each address"
		case o.Key != "":
			w.Reason = fmt.Sprintf("an override of rule %s for the key %s: /v1/forward-auth "+
				"counts such a client under %s", o.Rule, text, key)
		default:
			continue // a prefix that looks like an address
		}
		list = append(list, w)
	}
	return list
}

// clientKey returns the key of the client whose address or network a text is, or "" if it is
// neither. single is false for a network of more than one client.
func clientKey(text string) (key string, single bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		network = network.Masked()
		single = network.Addr().Is4() && network.Bits() == 32 ||
			network.Addr().Is6() && network.Bits() >= clientBits
		key, _ = clientKey(network.Addr().String())
		return key, single
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String(), true
	}
	network, _ := a.Prefix(clientBits)
	return network.String(), true
}
