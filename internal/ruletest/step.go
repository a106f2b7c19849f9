package ruletest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/strictyaml"
)

// step is a request at a moment of a test, with what is expected of its answer.
type step struct {
	at     string // FILE:LINE:COLUMN
	after  int64  // milliseconds from the start of the test to the first request
	times  int64
	every  int64 // milliseconds between repetitions
	checks []check
	// severally marks checks that are a list in the file.
	severally bool
	values    []string
	domain    string
	entries   [][]entry  // the descriptors of a request for the domain
	op        twotier.Op // its hold and booleans
	onExpiry  string     // release or keep
	as        string     // the name of the hold
	settle    string     // the name of a hold to settle
	renew     string     // the name of a hold to renew
	lasts     int64      // milliseconds from the renewal to the new end
	want      expectation
}

// check is a key of a request, with its rules.
type check struct {
	ns, key string
	n       int64
	hasN    bool
	rules   []string
}

// entry is a pair of a descriptor.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (r *reader) readStep(item *strictyaml.Node) step {
	s := step{at: r.Position(item), after: -1, times: 1}
	one := check{n: 1}
	keys := one.fields()
	r.addFields(&s, keys)
	s.want.addFields(keys)
	has := strictyaml.Mapping{Name: "a step", Example: "at: 10s", Fields: keys,
		Valid: "a step has at, times, every, ns, key, n, rules, checks, values, " +
			strings.Join(fields.Steps().Names(), ", ") + ", hold, on_expiry, as, settle, renew, " +
			"for, domain, descriptors, expect, by, near, shadow, over, retry_after, counts",
	}.Read(r.Reader, item)
	s.op.Release = s.onExpiry == "release"
	s.severally, s.want.hasRetryAfter = has["checks"] != nil, has["retry_after"] != nil
	if one.hasN = has["n"] != nil; !s.severally {
		s.checks = []check{one}
	}
	r.finishStep(&s, item, has)
	return s
}

func (c *check) fields() strictyaml.Fields {
	return strictyaml.Fields{
		"ns":    strictyaml.Parsed(&c.ns, checked(request.ValidNS, request.WantNS)),
		"key":   strictyaml.Parsed(&c.key, checked(request.ValidKey, request.WantKey)),
		"n":     strictyaml.Number(&c.n, 0, request.MaxN),
		"rules": strictyaml.Texts(&c.rules),
	}
}

// checked returns a parser that accepts the texts that valid does.
func checked(valid func([]byte) bool, want string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !valid([]byte(text)) {
			return text, errors.New(want)
		}
		return text, nil
	}
}

// addFields adds the keys of a step to those of its only check.
func (r *reader) addFields(s *step, keys strictyaml.Fields) {
	for _, name := range fields.Steps().Names() {
		keys[name] = strictyaml.Truth(fields.Named([]byte(name)).Value(&s.op))
	}
	maps.Copy(keys, strictyaml.Fields{
		"at":          strictyaml.Set(&s.after, r.readAt),
		"times":       strictyaml.Number(&s.times, 1, maxSteps),
		"every":       strictyaml.Parsed(&s.every, parseDuration),
		"checks":      strictyaml.Items(&s.checks, r.readCheck),
		"values":      strictyaml.Texts(&s.values),
		"domain":      strictyaml.Text(&s.domain),
		"descriptors": strictyaml.Items(&s.entries, r.readDescriptor),
		"hold":        strictyaml.Parsed(&s.op.Hold, parseDuration),
		"on_expiry":   strictyaml.OneOf(&s.onExpiry, "keep", "release"),
		"as":          strictyaml.Text(&s.as),
		"settle":      strictyaml.Text(&s.settle),
		"renew":       strictyaml.Text(&s.renew),
		"for":         strictyaml.Parsed(&s.lasts, parseDuration),
	})
}

// readAt reads the time of a request: a duration since the start of the test, or a time of day.
func (r *reader) readAt(n *strictyaml.Node) int64 {
	if text := n.Value; strictyaml.IsText(n) && strings.Contains(text, "T") {
		at, err := time.Parse(time.RFC3339, text)
		after := at.UnixMilli() - r.start
		if err == nil && after >= 0 && after <= maxAfter {
			return after
		}
		r.Fail(n, "at: %q is not a time such as 2026-03-28T22:30:00Z, at or after the start of "+
			"the test", text)
	}
	after := int64(0)
	strictyaml.Parsed(&after, parseDuration)(r.Reader, "at", n)
	return after
}

func (r *reader) readCheck(item *strictyaml.Node) check {
	c := check{n: 1}
	has := strictyaml.Mapping{Name: "a check", Example: "key: alice", Fields: c.fields(),
		Valid: "a check has ns, key, n and rules"}.Read(r.Reader, item)
	if c.hasN = has["n"] != nil; c.key == "" {
		r.Fail(item, "a check without a key")
	}
	return c
}

// readDescriptor reads a descriptor, whose entries are in order.
func (r *reader) readDescriptor(item *strictyaml.Node) (entries []entry) {
	strictyaml.Mapping{Name: "a descriptor", Example: "remote_address: 203.0.113.7",
		Each: func(key string, _, to *strictyaml.Node) {
			value, _ := r.Text(to, key)
			entries = append(entries, entry{key, value})
		}}.Read(r.Reader, item)
	if len(entries) == 0 {
		r.Fail(item, "a descriptor without entries, such as {remote_address: 203.0.113.7}")
	}
	return entries
}

// finishStep checks that the fields of a step make a request, and sets its time.
func (r *reader) finishStep(s *step, item *strictyaml.Node, has map[string]*strictyaml.Node) {
	if wrong := s.conflict(has); wrong != "" {
		r.Fail(item, "%s", wrong)
	}
	if len(s.checks) > request.MaxChecks {
		r.Fail(item, "checks: want at most %d", request.MaxChecks)
	}
	if s.after < 0 {
		s.after = r.now
	}
	if s.after < r.now {
		r.Fail(item, "at: %s is before the previous request, at %s", spell(s.after), spell(r.now))
	}
	if r.now = s.after + (s.times-1)*s.every; r.now > maxAfter {
		r.Fail(item, "at, every: want the last request at most 20 years after the start")
		r.now = maxAfter
	}
	r.checkNames(s, item, has)
	if r.requests += s.times; r.requests > maxSteps {
		r.Fail(item, "more than %d requests in all", maxSteps)
	}
}

// conflict returns why the fields of a step do not make one request, or "".
func (s *step) conflict(given map[string]*strictyaml.Node) string {
	has := func(keys ...string) (one string) {
		for _, key := range keys {
			if given[key] != nil {
				return key
			}
		}
		return ""
	}
	kind := has("settle", "renew", "descriptors", "values", "checks", "key")
	ofAcquire := append([]string{"checks", "n", "hold", "on_expiry"}, fields.Steps().Names()...)
	switch {
	case kind == "":
		return "no request; want key, checks, values, descriptors, settle or renew"
	case s.severally && len(s.checks) == 0, has("values") != "" && len(s.values) == 0,
		has("descriptors") != "" && len(s.entries) == 0:
		return kind + ": the list is empty"
	case kind == "descriptors" && s.domain == "":
		return "descriptors: want a domain with them"
	case kind == "descriptors" && has("key", "checks", "values", "rules", "ns", "hold",
		"on_expiry", "retry_after", "near")+has(fields.Steps().Names()...) != "":
		return "descriptors: want only n with them, and of the answer no retry_after and near"
	case kind != "descriptors" && s.domain != "":
		return "domain: want descriptors with it"
	case kind == "values" && has("key") == "",
		kind == "values" && has(ofAcquire...) != "":
		return "values: want a key with them, and no " + fields.Join(ofAcquire, "or")
	case kind == "checks" && has("key", "ns", "n", "rules") != "":
		return "checks: want key, ns, n and rules in each of them"
	}
	return s.holdConflict(kind, has)
}

// maxAfter is the longest duration in a test, in milliseconds.
const maxAfter = 20 * 366 * 24 * 3_600_000

func parseDuration(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	if err == nil && (d%time.Millisecond != 0 || d.Milliseconds() > maxAfter) {
		err = fmt.Errorf("%q is not a whole number of milliseconds, at most 20 years", text)
	}
	return d.Milliseconds(), err
}

func spell(ms int64) string { return twotier.FormatMillis(ms) }

func (s *step) request() string {
	switch {
	case s.settle != "":
		return fmt.Sprintf("settle %s with %d", s.settle, s.checks[0].n)
	case s.renew != "":
		return "renew " + s.renew + " for " + spell(s.lasts)
	case len(s.entries) > 0:
		var all []string
		for _, entries := range s.entries {
			var pairs []string
			for _, e := range entries {
				pairs = append(pairs, e.Key+"="+e.Value)
			}
			all = append(all, strings.Join(pairs, "|"))
		}
		return "domain " + s.domain + ", " + strings.Join(all, ", ")
	}
	var all []string
	for _, c := range s.checks {
		all = append(all, c.describe())
	}
	switch n := len(s.values); {
	case n == 1:
		all = append(all, "1 value")
	case n > 1:
		all = append(all, fmt.Sprintf("%d values", n))
	}
	return strings.Join(all, ", ")
}

func (c *check) describe() string {
	text := c.key
	if c.n != 1 {
		text += fmt.Sprintf(" n=%d", c.n)
	}
	if c.ns != "" {
		text += " in " + c.ns
	}
	if len(c.rules) > 0 {
		text += " under " + strings.Join(c.rules, " and ")
	}
	return text
}

// checkNames checks that a hold that a step names was made before, and remembers the one that it
// makes.
func (r *reader) checkNames(s *step, item *strictyaml.Node, has map[string]*strictyaml.Node) {
	for _, by := range [][2]string{{"settle", s.settle}, {"renew", s.renew}} {
		if has[by[0]] != nil && !r.held[by[1]] {
			r.Fail(item, "%s: no step before has hold and as: %s", by[0], by[1])
		}
	}
	if s.as != "" {
		r.held[s.as] = true
	}
}

// holdConflict is conflict for the fields about holds. has returns the first key that a step has.
func (s *step) holdConflict(kind string, has func(keys ...string) string) string {
	asked := has("key", "checks", "values", "descriptors", "rules", "hold", "on_expiry", "ns") +
		has(fields.Steps().Names()...)
	answer := has("expect", "by", "near", "shadow", "retry_after", "counts")
	switch {
	case kind == "settle" && (asked != "" || has("renew", "for") != ""):
		return "settle: want only n with it"
	case kind == "settle" && has("n") == "":
		return "settle: want n with it, the number of events in the end; 0 releases the hold"
	case kind == "settle" && answer != "":
		return "settle: of the answer want only over"
	case kind == "renew" && (asked != "" || answer != "" || has("n", "over") != ""):
		return "renew: want only for with it"
	case kind == "renew" && s.lasts == 0:
		return "renew: want for with it, such as for: 5m, the time until the new end"
	case kind != "renew" && has("for") != "":
		return "for: only a renewal has it"
	case kind != "settle" && has("over") != "":
		return "over: only a settlement has it"
	case (s.as != "") != (s.op.Hold > 0):
		return "hold and as: want both, such as hold: 90s and as: first, or neither"
	case has("on_expiry") != "" && s.op.Hold == 0:
		return "on_expiry: want it only together with hold"
	}
	return ""
}
