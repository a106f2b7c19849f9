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
	allowed            *bool
	by, near, shadow   []string
	over               []string
	hasBy, hasNear     bool
	hasShadow, hasOver bool
	retryAfter         int64 // milliseconds, or -1: never
	hasRetryAfter      bool
	counts             []wantedCount
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

// readExpectation reads a field of an expectation, and reports whether the key is one.
func (r *reader) readExpectation(w *expectation, key string, to *strictyaml.Node) bool {
	switch key {
	case "expect":
		text, _ := r.Text(to, key)
		if text != "allowed" && text != "refused" {
			r.Fail(to, "expect: %q is neither allowed nor refused", text)
		}
		w.allowed = new(text == "allowed")
	case "by":
		w.by, w.hasBy = r.names(to, key), true
	case "near":
		w.near, w.hasNear = r.names(to, key), true
	case "shadow":
		w.shadow, w.hasShadow = r.names(to, key), true
	case "over":
		w.over, w.hasOver = r.names(to, key), true
	case "retry_after":
		w.hasRetryAfter = true
		if text := to.Value; text == "never" {
			w.retryAfter = -1
		} else {
			w.retryAfter = r.duration(to, key)
		}
	case "counts":
		strictyaml.Mapping{Name: "counts", Example: "login/1m: 3",
			Each: func(name string, _, to *strictyaml.Node) {
				w.counts = append(w.counts,
					wantedCount{name, r.number(to, name, 0, twotier.Unlimited)})
			}}.Read(r.Reader, to)
	default:
		return false
	}
	return true
}

// isMet reports whether an outcome is as expected.
func (w *expectation) isMet(o *outcome) bool {
	if w.allowed != nil && *w.allowed != o.allowed ||
		w.hasRetryAfter && w.retryAfter != o.retryAfter {
		return false
	}
	for _, list := range []struct {
		has          bool
		wanted, have []string
	}{{w.hasBy, w.by, o.by}, {w.hasNear, w.near, o.near}, {w.hasShadow, w.shadow, o.shadow},
		{w.hasOver, w.over, o.over}} {
		if list.has && !covers(list.wanted, list.have) {
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
	if w.allowed != nil {
		all = append(all, verdictOf(*w.allowed))
	}
	all = appendList(all, "by", w.hasBy, w.by)
	if w.hasRetryAfter {
		all = append(all, spellRetry(w.retryAfter))
	}
	all = appendList(all, "near", w.hasNear, w.near)
	all = appendList(all, "shadow", w.hasShadow, w.shadow)
	all = appendList(all, "over", w.hasOver, w.over)
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
	all = appendList(all, "by", w.hasBy || len(o.by) > 0, o.by)
	if w.hasRetryAfter || o.retryAfter != 0 {
		all = append(all, spellRetry(o.retryAfter))
	}
	all = appendList(all, "near", w.hasNear || len(o.near) > 0, o.near)
	all = appendList(all, "shadow", w.hasShadow || len(o.shadow) > 0, o.shadow)
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
