package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/strictyaml"
)

// maxLimits bounds the limits of a rule, and maxDefaults the default rules of a namespace.
const (
	maxLimits   = 16
	maxDefaults = 16
)

// ReadList reads named rules from a list in another document, such as a file of settings. path is
// the document's name in errors.
func ReadList(path string, list *strictyaml.Node) (*Document, error) {
	r := newReader(path)
	r.ruleList(list)
	return r.result()
}

func (r *reader) ruleList(list *strictyaml.Node) {
	if strictyaml.IsNull(list) {
		r.Fail(list, "rules: there is nothing in it; write rules: [] to have no rules")
		return
	}
	for _, item := range r.List(list, "rules") {
		r.rule(item)
	}
}

// ruleNodes are the places of a rule's parts.
type ruleNodes struct {
	name, limits, open, distinct, ban, charge, overrides *strictyaml.Node

	among int64 // how many holds may be open, among the limits
}

// rule reads one named rule.
func (r *reader) rule(item *strictyaml.Node) {
	var one twotier.Rule
	var at ruleNodes
	strictyaml.Mapping{Name: "a rule", Example: "name: login",
		Each: func(key string, place, to *strictyaml.Node) {
			switch key {
			case "name":
				at.name, one.Name = to, r.name(to, "the name of a rule")
			case "namespace":
				one.Namespace = r.name(to, "namespace")
			case "limits":
				at.limits = to
				one.Limits, at.among = r.limits(to)
			case "concurrent":
				at.open, one.Concurrent = to, r.openHolds(to)
			case "distinct":
				at.distinct, one.Distinct = to, r.distinct(to)
			case "state":
				one.State = r.state(to)
			case "ban":
				at.ban, one.Ban = to, r.ban(to)
			case "charge":
				at.charge, one.Charge = to, r.charge(to)
			case "warn":
				one.Warn = r.warn(to)
			case "overrides":
				at.overrides, one.Overrides = to, r.overrides(to)
			case "default":
				one.Default = r.truth(to, "default")
			default:
				r.Unknown(place, key, "a rule has "+strings.Join(ruleKeys(), ", "))
			}
		}}.Read(r.Reader, item)
	r.addRule(item, &one, &at)
}

// addRule adds a rule, unless its parts don't belong together.
func (r *reader) addRule(item *strictyaml.Node, one *twotier.Rule, at *ruleNodes) {
	if at.among > 0 && at.open != nil {
		r.Fail(at.open, "concurrent: given twice")
	}
	one.Concurrent = max(one.Concurrent, at.among)
	judges := at.limits != nil || at.open != nil
	switch first := r.seen[one.Name]; {
	case at.name == nil:
		r.Fail(item, "a rule without a name")
	case first != nil:
		r.Fail(at.name, "there is a rule %s already in line %d", one.Name, first.Line)
	case !judges && at.distinct == nil:
		r.Fail(item, "rule %s has no limits, such as limits: [15/1m, 50/24h] or distinct: 5/24h",
			one.Name)
	case !judges && at.ban != nil:
		r.Fail(at.ban, "ban: rule %s has only distinct limits, and these start no bans", one.Name)
	case !judges && at.charge != nil:
		r.Fail(at.charge, "charge: rule %s has only distinct limits, and these count no events",
			one.Name)
	default:
		if r.seen[one.Name] = at.name; one.Default {
			r.countDefault(item, one)
		}
		r.checkOverrides(one, at.overrides, at.limits != nil, at.distinct != nil)
		r.rules = append(r.rules, *one)
		r.addSourceRule(one, at.name)
		r.addSourceLimits(one, one.Limits, at.limits, 0, false)
		r.addSourceLimits(one, one.Distinct, at.distinct, 0, true)
		for i, o := range one.Overrides {
			r.addSourceLimits(one, o.Limits, r.overridesRead[i], i+1, false)
			r.addSourceLimits(one, o.Distinct, r.overridesRead[i], i+1, true)
		}
	}
}

// countDefault counts the default rules of a namespace and their limits on distinct values: with
// too many such limits, no request could add any.
func (r *reader) countDefault(item *strictyaml.Node, one *twotier.Rule) {
	namespace := one.Space()
	if r.defaults[namespace]++; r.defaults[namespace] == maxDefaults+1 {
		r.Fail(item, "more than %d default rules of namespace %s", maxDefaults, namespace)
	}
	most := len(one.Distinct)
	for _, o := range one.Overrides {
		most = max(most, len(o.Distinct))
	}
	before := r.onValues[namespace]
	if one.State != twotier.RuleOff {
		r.onValues[namespace] += most
	}
	if before <= twotier.MaxDistinct && r.onValues[namespace] > twotier.MaxDistinct {
		r.Fail(item, "the default rules of namespace %s have more than %d distinct limits",
			namespace, twotier.MaxDistinct)
	}
}

// ruleKeys returns the keys that a rule may have.
func ruleKeys() []string {
	return []string{"name", "namespace", "limits", "concurrent", "distinct", "state", "ban", "charge",
		"warn", "overrides", "default"}
}

// truth reads true or false.
func (r *reader) truth(n *strictyaml.Node, what string) bool {
	text, ok := r.Text(n, what)
	if ok && text != "true" && text != "false" {
		r.Fail(n, "%s: %q is neither true nor false", what, text)
	}
	return text == "true"
}

// charge reads when a request that the rule refuses is counted: always is the only choice.
func (r *reader) charge(n *strictyaml.Node) bool {
	text, ok := r.Text(n, "charge")
	if ok && text != "always" {
		r.Fail(n, "charge: %q is not \"always\"; leave it out to count only what is allowed", text)
	}
	return text == "always"
}

// warn reads the warning level of a rule: a percentage of each limit, such as 80%.
func (r *reader) warn(n *strictyaml.Node) int64 {
	text, ok := r.Text(n, "warn")
	if !ok {
		return 0
	}
	number, percent := strings.CutSuffix(text, "%")
	level, err := strconv.ParseUint(number, 10, 8)
	if !percent || err != nil || level < 1 || level > 100 {
		r.Fail(n, "warn: %q is not a whole percentage from 1%% to 100%%, such as 80%%", text)
	}
	return int64(level)
}

// name reads the name of a rule or a namespace.
func (r *reader) name(n *strictyaml.Node, what string) string {
	text, ok := r.Text(n, what)
	if !ok {
		return ""
	}
	if err := config.CheckName(text); err != nil {
		r.Fail(n, "%s: %v", what, err)
	}
	return text
}

func (r *reader) state(n *strictyaml.Node) twotier.RuleState {
	text, ok := r.Text(n, "state")
	if !ok {
		return twotier.RuleOn
	}
	s, err := twotier.ParseRuleState(text)
	if err != nil {
		r.Fail(n, "state: %v", err)
	}
	return s
}

// maxBan is the longest ban, and minBan the shortest.
const (
	maxBan = 24 * time.Hour
	minBan = time.Second
)

// ban reads the length of a ban, in milliseconds.
func (r *reader) ban(n *strictyaml.Node) int64 {
	text, ok := r.Text(n, "ban")
	if !ok {
		return 0
	}
	d, err := config.ParseDuration(text)
	switch {
	case err != nil:
		r.Fail(n, "ban: %v", err)
	case d < minBan || d > maxBan || d%time.Millisecond != 0:
		r.Fail(n, "ban: %q is not from %v to %v, in whole milliseconds", text, "1s", "24h")
	}
	return d.Milliseconds()
}

// limitItems returns the items of a list of limits. A single limit needs no list.
func (r *reader) limitItems(n *strictyaml.Node, name, example string) []*strictyaml.Node {
	if !strictyaml.IsList(n) && !strictyaml.IsNull(n) {
		return []*strictyaml.Node{n}
	}
	items := r.List(n, name)
	if len(items) == 0 || len(items) > maxLimits {
		r.Fail(n, "%s: want 1 to %d of them, such as %s", name, maxLimits, example)
	}
	return items
}

// limits reads a list such as [15/1m, 50/24h, {concurrent: 5}], or a single limit.
func (r *reader) limits(n *strictyaml.Node) (limits []twotier.RuleLimit, concurrent int64) {
	items := r.limitItems(n, "limits", "[15/1m, 50/24h]")
	windows := make([]*strictyaml.Node, 0, len(items))
	for _, item := range items {
		most, ok := r.concurrent(item)
		switch {
		case !ok:
			windows = append(windows, item)
		case concurrent > 0:
			r.Fail(item, "concurrent: given twice")
		default:
			concurrent = most
		}
	}
	return r.limitsOf(windows, false), concurrent
}

// isConcurrent reports whether an item of a list of limits is a limit such as {concurrent: 5}.
func isConcurrent(item *strictyaml.Node) bool {
	item = strictyaml.Resolve(item)
	return strictyaml.IsMapping(item) && len(item.Content) == 2 &&
		item.Content[0].Value == "concurrent"
}

// concurrent reads a limit such as {concurrent: 5}. ok is false for other limits.
func (r *reader) concurrent(item *strictyaml.Node) (most int64, ok bool) {
	if !isConcurrent(item) {
		return 0, false
	}
	return r.openHolds(item.Content[1]), true
}

// openHolds reads how many holds may be open.
func (r *reader) openHolds(n *strictyaml.Node) (most int64) {
	text, ok := r.Text(n, "concurrent")
	if !ok {
		return 0
	}
	most, err := strconv.ParseInt(text, 10, 32)
	if err != nil || most < 1 {
		r.Fail(n, "concurrent: %q is not a number from 1 to 2147483647", text)
	}
	return most
}

// distinct reads such a list, or a single limit.
func (r *reader) distinct(n *strictyaml.Node) []twotier.RuleLimit {
	return r.limitsOf(r.limitItems(n, "distinct", "5/24h"), true)
}

// limitsOf reads limits.
func (r *reader) limitsOf(items []*strictyaml.Node, distinct bool) (limits []twotier.RuleLimit) {
	for _, item := range items {
		l, ok := r.limit(item)
		if !ok {
			continue
		}
		if distinct && l.Period != nil {
			r.Fail(item, "distinct: different values have no calendar windows such as %s; want a "+
				"duration such as 24h", l.Text)
		}
		limits = append(limits, l)
	}
	return limits
}

// limit reads one limit: a text such as 15/1m, or an object with the fields of a calendar window.
func (r *reader) limit(item *strictyaml.Node) (l twotier.RuleLimit, ok bool) {
	if strictyaml.IsMapping(item) {
		return r.limitObject(item), true
	}
	text, ok := r.Text(item, "a limit")
	if !ok {
		return l, false
	}
	l, err := parseLimit(text)
	if err != nil {
		r.Fail(item, "limit: %v", err)
	}
	return l, true
}

// parseLimit reads a limit such as 15/1m.
func parseLimit(text string) (twotier.RuleLimit, error) {
	most, window, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(most, 10, 64)
	if !ok || err != nil || n < 0 || n >= twotier.Unlimited {
		return twotier.RuleLimit{}, fmt.Errorf("%q is not MAX/WINDOW, such as 15/1m", text)
	}
	l, err := parseWindow(window)
	l.Max = n
	return l, err
}

// parseWindow reads the window of a limit: a duration, or the short form of a period.
func parseWindow(text string) (twotier.RuleLimit, error) {
	if text != "" && text[0] >= 'a' {
		period, err := twotier.ParsePeriod(text)
		return twotier.RuleLimit{Text: text, Period: period}, err
	}
	d, err := config.ParseDuration(text)
	if err == nil && (d < time.Millisecond || d%time.Millisecond != 0) {
		err = fmt.Errorf("%q is not a whole number of milliseconds, at least 1ms", text)
	}
	return twotier.RuleLimit{Window: d.Milliseconds(), Text: text}, err
}
