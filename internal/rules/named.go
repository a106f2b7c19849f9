package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

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
	r.ruleList(r.Reader, "rules", list)
	return r.result()
}

func (r *reader) ruleList(_ *strictyaml.Reader, name string, list *strictyaml.Node) {
	if strictyaml.IsNull(list) {
		r.Fail(list, "rules: there is nothing in it; write rules: [] to have no rules")
		return
	}
	for _, item := range r.List(list, name) {
		r.rule(item)
	}
}

func (r *reader) rule(item *strictyaml.Node) {
	var one twotier.Rule
	var limits limitList
	has := strictyaml.Mapping{Name: "a rule", Example: "name: login",
		Valid: "a rule has name, namespace, limits, concurrent, distinct, state, ban, charge, " +
			"warn, overrides, default",
		Fields: strictyaml.Fields{
			"name":       strictyaml.Parsed(&one.Name, parseName).As("the name of a rule"),
			"namespace":  strictyaml.Parsed(&one.Namespace, parseName),
			"limits":     strictyaml.Set(&limits, r.limits),
			"concurrent": openHolds(&one.Concurrent),
			"distinct":   strictyaml.Set(&one.Distinct, r.distinct),
			"state":      strictyaml.Parsed(&one.State, twotier.ParseRuleState),
			"ban":        strictyaml.Parsed(&one.Ban, parseBan),
			"charge":     strictyaml.Parsed(&one.Charge, parseCharge),
			"warn":       strictyaml.Parsed(&one.Warn, parseWarn),
			"overrides":  strictyaml.Set(&one.Overrides, r.overrides),
			"default":    strictyaml.Truth(&one.Default),
		}}.Read(r.Reader, item)
	if limits.concurrent > 0 && has["concurrent"] != nil {
		r.Fail(has["concurrent"], "concurrent: given twice")
	}
	one.Limits, one.Concurrent = limits.windows, max(one.Concurrent, limits.concurrent)
	r.addRule(item, &one, has)
}

// addRule adds a rule, unless its parts, whose nodes are has, don't belong together.
func (r *reader) addRule(item *strictyaml.Node, one *twotier.Rule,
	has map[string]*strictyaml.Node) {
	judges := has["limits"] != nil || has["concurrent"] != nil
	switch first := r.seen[one.Name]; {
	case has["name"] == nil:
		r.Fail(item, "a rule without a name")
	case first != nil:
		r.Fail(has["name"], "there is a rule %s already in line %d", one.Name, first.Line)
	case !judges && has["distinct"] == nil:
		r.Fail(item, "rule %s has no limits, such as limits: [15/1m, 50/24h] or distinct: 5/24h",
			one.Name)
	case !judges && has["ban"] != nil:
		r.Fail(has["ban"], "ban: rule %s has only distinct limits, and these start no bans",
			one.Name)
	case !judges && has["charge"] != nil:
		r.Fail(has["charge"], "charge: rule %s has only distinct limits, and these count no events",
			one.Name)
	default:
		if r.seen[one.Name] = has["name"]; one.Default {
			r.countDefault(item, one)
		}
		r.checkOverrides(one, has["overrides"], has["limits"] != nil, has["distinct"] != nil)
		r.rules = append(r.rules, *one)
		r.addSourceRule(one, has)
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

// parseName accepts the name of a rule or a namespace.
func parseName(text string) (string, error) { return text, config.CheckName(text) }

// parseCharge parses when a request that the rule refuses is counted: always is the only choice.
func parseCharge(text string) (always bool, err error) {
	if text != "always" {
		err = fmt.Errorf("%q is not \"always\"; leave it out to count only what is allowed", text)
	}
	return text == "always", err
}

// parseWarn parses the warning level of a rule: a percentage of each limit, such as 80%.
func parseWarn(text string) (int64, error) {
	number, percent := strings.CutSuffix(text, "%")
	level, err := strconv.ParseUint(number, 10, 8)
	if !percent || err != nil || level < 1 || level > 100 {
		err = fmt.Errorf("%q is not a whole percentage from 1%% to 100%%, such as 80%%", text)
	}
	return int64(level), err
}

// maxBan is the longest ban, and minBan the shortest.
const (
	maxBan = 24 * time.Hour
	minBan = time.Second
)

// parseBan parses the length of a ban, in milliseconds.
func parseBan(text string) (int64, error) {
	d, err := config.ParseDuration(text)
	if err == nil && (d < minBan || d > maxBan || d%time.Millisecond != 0) {
		err = fmt.Errorf("%q is not from 1s to 24h, in whole milliseconds", text)
	}
	return d.Milliseconds(), err
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

// limitList is the content of a list of limits.
type limitList struct {
	windows    []twotier.RuleLimit
	concurrent int64 // how many holds may be open, 0 if the list has no such limit
}

// limits reads a list such as [15/1m, 50/24h, {concurrent: 5}], or a single limit.
func (r *reader) limits(n *strictyaml.Node) (l limitList) {
	items := r.limitItems(n, "limits", "[15/1m, 50/24h]")
	windows := make([]*strictyaml.Node, 0, len(items))
	for _, item := range items {
		switch {
		case !isConcurrent(item):
			windows = append(windows, item)
		case l.concurrent > 0:
			r.Fail(item, "concurrent: given twice")
		default:
			openHolds(&l.concurrent)(r.Reader, "concurrent", item.Content[1])
		}
	}
	l.windows = r.limitsOf(windows, false)
	return l
}

// isConcurrent reports whether an item of a list of limits is a limit such as {concurrent: 5}.
func isConcurrent(item *strictyaml.Node) bool {
	item = strictyaml.Resolve(item)
	return strictyaml.IsMapping(item) && len(item.Content) == 2 &&
		item.Content[0].Value == "concurrent"
}

// openHolds reads how many holds may be open.
func openHolds(to *int64) strictyaml.Value { return strictyaml.Number(to, 1, math.MaxInt32) }

// distinct reads such a list, or a single limit.
func (r *reader) distinct(n *strictyaml.Node) []twotier.RuleLimit {
	return r.limitsOf(r.limitItems(n, "distinct", "5/24h"), true)
}

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

// limitObject reads a limit such as {max: 1000, window: month, zone: Europe/Lisbon, anchor: 14}.
func (r *reader) limitObject(item *strictyaml.Node) (l twotier.RuleLimit) {
	has := strictyaml.Mapping{Name: "a limit", Example: "max: 15",
		Valid:  "a limit has max and window, and a calendar window also zone and anchor",
		Fields: strictyaml.Fields{"window": nil, "max": nil, "zone": nil, "anchor": nil},
	}.Read(r.Reader, item)
	window, most := has["window"], has["max"]
	if window == nil || most == nil {
		r.Fail(item, "limit: want max and window, such as {max: 15, window: 1m}")
		return l
	}
	text, ok := r.Text(window, "window")
	if !ok {
		return l
	}
	l, err := parseWindow(text)
	if err != nil {
		r.Fail(window, "limit: %v", err)
		return l
	}
	strictyaml.Number(&l.Max, 0, twotier.Unlimited-1)(r.Reader, "max", most)
	if zone, anchor := has["zone"], has["anchor"]; zone != nil || anchor != nil {
		r.setCalendar(&l, window, zone, anchor)
	}
	return l
}

// setCalendar gives a limit the period that its window, zone and anchor spell. One of the last two
// may be nil.
func (r *reader) setCalendar(l *twotier.RuleLimit, window, zone, anchor *strictyaml.Node) {
	if l.Period == nil || l.Text != l.Period.Unit().String() {
		r.Fail(window, "window: with zone or anchor it is hour, day, week or month")
		return
	}
	name, day := "", twotier.DefaultAnchor
	if zone != nil {
		name, _ = r.Text(zone, "zone")
	}
	if anchor != nil {
		text, _ := r.Text(anchor, "anchor")
		n, err := strconv.Atoi(text)
		if err != nil {
			r.Fail(anchor, "anchor: %q is not a whole number", text)
			return
		}
		day = n
	}
	period, err := twotier.NewPeriod(l.Text, name, day)
	if err != nil {
		r.Fail(window, "limit: %v", err)
		return
	}
	l.Period, l.Text = period, period.String()
}

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
