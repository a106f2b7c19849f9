package ruletest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// expectation is what a step expects of each answer. Nil and empty fields expect nothing.
type expectation struct {
	verdict                string // allowed or refused
	by, near, shadow, over []string
	retryAfter             int64 // milliseconds, or -1: never
	hasRetryAfter          bool
	counts                 []wantedCount
}

// wantedCount is the expected count of a limit.
type wantedCount struct {
	name string
	n    int64
}

// outcome is the answer to a request.
type outcome struct {
	allowed          bool
	by, near, shadow []string // names of limits
	retryAfter       int64
	limits           []judged
	settled          bool // the request was a settlement
	over             []string
}

// judged is a limit with its count.
type judged struct {
	name       string
	count, max int64
}

// addFields adds the keys of an expectation to those of its step.
func (w *expectation) addFields(fields strictyaml.Fields) {
	fields["expect"] = strictyaml.OneOf(&w.verdict, "allowed", "refused")
	fields["by"] = strictyaml.Texts(&w.by)
	fields["near"] = strictyaml.Texts(&w.near)
	fields["shadow"] = strictyaml.Texts(&w.shadow)
	fields["over"] = strictyaml.Texts(&w.over)
	fields["retry_after"] = strictyaml.Parsed(&w.retryAfter, parseRetry)
	fields["counts"] = w.readCounts
}

// parseRetry parses the time until a retry, or never.
func parseRetry(text string) (int64, error) {
	if text == "never" {
		return -1, nil
	}
	return parseDuration(text)
}

// readCounts reads a mapping from limits to their counts.
func (w *expectation) readCounts(r *strictyaml.Reader, name string, n *strictyaml.Node) {
	strictyaml.Mapping{Name: name, Example: "login/1m: 3",
		Each: func(limit string, _, to *strictyaml.Node) {
			c := wantedCount{name: limit}
			strictyaml.Number(&c.n, 0, twotier.Unlimited)(r, limit, to)
			w.counts = append(w.counts, c)
		}}.Read(r, n)
}

// isMet reports whether an outcome is as expected.
func (w *expectation) isMet(o *outcome) bool {
	if w.verdict != "" && w.verdict != verdictOf(o.allowed) ||
		w.hasRetryAfter && w.retryAfter != o.retryAfter {
		return false
	}
	for _, list := range [][2][]string{{w.by, o.by}, {w.near, o.near}, {w.shadow, o.shadow},
		{w.over, o.over}} {
		if list[0] != nil && !covers(list[0], list[1]) {
			return false
		}
	}
	for _, c := range w.counts {
		found := false
		for _, l := range o.limits {
			if stands(c.name, l.name) {
				if found = true; l.count != c.n {
					return false
				}
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// covers reports whether each wanted name stands for some limits, and each limit has one.
func covers(wanted, have []string) bool {
	for _, name := range wanted {
		if !slices.ContainsFunc(have, func(l string) bool { return stands(name, l) }) {
			return false
		}
	}
	for _, l := range have {
		if !slices.ContainsFunc(wanted, func(name string) bool { return stands(name, l) }) {
			return false
		}
	}
	return true
}

// stands reports whether a name stands for a limit such as login/1m: its own name, or the name of
// its rule. Limits of one of several checks begin with the check, as in checks[1].login/1m, which
// the name may leave out.
func stands(name, limit string) bool {
	if name == limit || strings.HasPrefix(limit, name+"/") {
		return true
	}
	_, limit, several := strings.Cut(limit, "].")
	return several && stands(name, limit)
}

// String describes what is expected, as outcome.describe does for the answer.
func (w *expectation) String() string {
	var all []string
	if w.verdict != "" {
		all = append(all, w.verdict)
	}
	all = appendList(all, "by", w.by != nil, w.by)
	if w.hasRetryAfter {
		all = append(all, spellRetry(w.retryAfter))
	}
	all = appendList(all, "near", w.near != nil, w.near)
	all = appendList(all, "shadow", w.shadow != nil, w.shadow)
	all = appendList(all, "over", w.over != nil, w.over)
	for _, c := range w.counts {
		all = append(all, "count of "+c.name+" "+strconv.FormatInt(c.n, 10))
	}
	return strings.Join(all, ", ")
}

// describe describes an outcome, with what the expectation names.
func (o *outcome) describe(w *expectation) string {
	if o.settled {
		return strings.Join(appendList(nil, "over", true, o.over), ", ")
	}
	all := []string{verdictOf(o.allowed)}
	all = appendList(all, "by", w.by != nil || len(o.by) > 0, o.by)
	if w.hasRetryAfter || o.retryAfter != 0 {
		all = append(all, spellRetry(o.retryAfter))
	}
	all = appendList(all, "near", w.near != nil || len(o.near) > 0, o.near)
	all = appendList(all, "shadow", w.shadow != nil || len(o.shadow) > 0, o.shadow)
	return strings.Join(all, ", ")
}

// counts describes the limits that were compared.
func (o *outcome) counts() string {
	var all []string
	for _, l := range o.limits {
		all = append(all, fmt.Sprintf("%s %d of %d", l.name, l.count, l.max))
	}
	return strings.Join(all, ", ")
}

func verdictOf(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

func spellRetry(ms int64) string {
	if ms < 0 {
		return "retry_after never"
	}
	return "retry_after " + spell(ms)
}

// appendList appends a name and a list if there is one.
func appendList(all []string, name string, has bool, list []string) []string {
	if !has {
		return all
	}
	if len(list) == 0 {
		return append(all, name+" none")
	}
	return append(all, name+" "+strings.Join(list, " and "))
}
