package ruletest

import (
	"fmt"
	"strconv"
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
	times  int
	every  int64 // milliseconds between repetitions
	checks []check
	// severally marks checks that are a list in the file.
	severally bool
	values    []string
	domain    string
	entries   [][]entry  // the descriptors of a request for the domain
	op        twotier.Op // its hold and booleans
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
type entry struct{ key, value string }

// stepKeys lists the keys of a step.
func stepKeys() []string {
	keys := []string{"at", "times", "every", "ns", "key", "n", "rules", "checks", "values"}
	return append(append(keys, fields.Steps().Names()...),
		"hold", "on_expiry", "as", "settle", "renew", "for", "domain", "descriptors", "expect",
		"by", "near", "shadow", "over", "retry_after", "counts")
}

// readStep reads one step.
func (r *reader) readStep(item *strictyaml.Node) step {
	s := step{at: r.Position(item), after: -1, times: 1}
	one, seen := check{n: 1}, map[string]bool{}
	strictyaml.Mapping{Name: "a step", Example: "at: 10s",
		Each: func(key string, at, to *strictyaml.Node) {
			seen[key] = true
			if !r.readCheckField(&one, key, to) && !r.readTiming(&s, key, to) &&
				!r.readRequest(&s, key, to) && !r.readExpectation(&s.want, key, to) {
				r.Unknown(at, key, "a step has "+strings.Join(stepKeys(), ", "))
			}
		}}.Read(r.Reader, item)
	if !seen["checks"] {
		s.checks = []check{one}
	}
	r.finishStep(&s, item, seen)
	return s
}

// readCheckField reads a field of a check, and reports whether the key is one.
func (r *reader) readCheckField(c *check, key string, to *strictyaml.Node) bool {
	switch key {
	case "ns":
		if c.ns, _ = r.Text(to, key); !request.ValidNS([]byte(c.ns)) {
			r.Fail(to, "ns: %s", request.WantNS)
		}
	case "key":
		if c.key, _ = r.Text(to, key); !request.ValidKey([]byte(c.key)) {
			r.Fail(to, "key: %s", request.WantKey)
		}
	case "n":
		c.n, c.hasN = r.number(to, key, 0, request.MaxN), true
	case "rules":
		c.rules = r.names(to, key)
	default:
		return false
	}
	return true
}

// readTiming reads when a request is made, and how often.
func (r *reader) readTiming(s *step, key string, to *strictyaml.Node) bool {
	switch key {
	case "at":
		s.after = r.readAt(to)
	case "times":
		s.times = int(r.number(to, key, 1, maxSteps))
	case "every":
		s.every = r.duration(to, key)
	default:
		return false
	}
	return true
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
	return r.duration(n, "at")
}

// readRequest reads what a request asks for, apart from a single check.
func (r *reader) readRequest(s *step, key string, to *strictyaml.Node) bool {
	switch key {
	case "checks":
		s.severally = true
		for _, item := range r.List(to, key) {
			s.checks = append(s.checks, r.readCheck(item))
		}
	case "values":
		s.values = r.names(to, key)
	case "domain":
		s.domain, _ = r.Text(to, key)
	case "descriptors":
		for _, item := range r.List(to, key) {
			s.entries = append(s.entries, r.readDescriptor(item))
		}
	default:
		return r.readBoolean(s, key, to) || r.readHold(s, key, to)
	}
	return true
}

// readBoolean reads a boolean of an acquire, and reports whether the key is one.
func (r *reader) readBoolean(s *step, key string, to *strictyaml.Node) bool {
	f := fields.Named([]byte(key)) & fields.Steps()
	if f == 0 {
		return false
	}
	text, _ := r.Text(to, key)
	*f.Value(&s.op) = text == "true"
	if text != "true" && text != "false" {
		r.Fail(to, "%s: %q is neither true nor false", key, text)
	}
	return true
}

// readCheck reads one of several checks.
func (r *reader) readCheck(item *strictyaml.Node) check {
	c := check{n: 1}
	strictyaml.Mapping{Name: "a check", Example: "key: alice",
		Each: func(key string, at, to *strictyaml.Node) {
			if !r.readCheckField(&c, key, to) {
				r.Unknown(at, key, "a check has ns, key, n and rules")
			}
		}}.Read(r.Reader, item)
	if c.key == "" {
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
func (r *reader) finishStep(s *step, item *strictyaml.Node, seen map[string]bool) {
	if wrong := s.conflict(seen); wrong != "" {
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
	if r.now = s.after + int64(s.times-1)*s.every; r.now > maxAfter {
		r.Fail(item, "at, every: want the last request at most 20 years after the start")
		r.now = maxAfter
	}
	r.checkNames(s, item, seen)
	if r.requests += s.times; r.requests > maxSteps {
		r.Fail(item, "more than %d requests in all", maxSteps)
	}
}

// conflict returns why the fields of a step do not make one request, or "".
func (s *step) conflict(seen map[string]bool) string {
	has := func(keys ...string) (one string) {
		for _, key := range keys {
			if seen[key] {
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
	case seen["checks"] && len(s.checks) == 0, seen["values"] && len(s.values) == 0,
		seen["descriptors"] && len(s.entries) == 0:
		return kind + ": the list is empty"
	case kind == "descriptors" && s.domain == "":
		return "descriptors: want a domain with them"
	case kind == "descriptors" && has("key", "checks", "values", "rules", "ns", "hold",
		"on_expiry", "retry_after", "near")+has(fields.Steps().Names()...) != "":
		return "descriptors: want only n with them, and of the answer no retry_after and near"
	case kind != "descriptors" && s.domain != "":
		return "domain: want descriptors with it"
	case kind == "values" && !seen["key"],
		kind == "values" && has(ofAcquire...) != "":
		return "values: want a key with them, and no " + fields.Join(ofAcquire, "or")
	case kind == "checks" && has("key", "ns", "n", "rules") != "":
		return "checks: want key, ns, n and rules in each of them"
	}
	return s.holdConflict(kind, has)
}

// number reads a whole number.
func (r *reader) number(n *strictyaml.Node, name string, least, most int64) int64 {
	text, ok := r.Text(n, name)
	if !ok {
		return least
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		r.Fail(n, "%s: %q is not a number from %d to %d", name, text, least, most)
		return least
	}
	return v
}

// maxAfter is the longest duration in a test, in milliseconds.
const maxAfter = 20 * 366 * 24 * 3_600_000

// duration reads a duration and returns its milliseconds.
func (r *reader) duration(n *strictyaml.Node, name string) int64 {
	text, ok := r.Text(n, name)
	if !ok {
		return 0
	}
	if text == "0" {
		return 0
	}
	d, err := config.ParseDuration(text)
	switch {
	case err != nil:
		r.Fail(n, "%s: %v", name, err)
	case d%time.Millisecond != 0 || d.Milliseconds() > maxAfter:
		r.Fail(n, "%s: %q is not a whole number of milliseconds, at most 20 years", name, text)
	}
	return d.Milliseconds()
}

// names reads a list of texts, or a single one.
func (r *reader) names(n *strictyaml.Node, name string) []string {
	items := []*strictyaml.Node{n}
	if strictyaml.IsList(n) {
		items = r.List(n, name)
	}
	all := make([]string, 0, len(items))
	for _, item := range items {
		if text, ok := r.Text(item, name); ok {
			all = append(all, text)
		}
	}
	return all
}

// spell formats milliseconds.
func spell(ms int64) string { return config.FormatMilliseconds(ms) }

// request describes the request of a step.
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
				pairs = append(pairs, e.key+"="+e.value)
			}
			all = append(all, strings.Join(pairs, "|"))
		}
		return "domain " + s.domain + ", " + strings.Join(all, ", ")
	}
	var all []string
	for _, c := range s.checks {
		all = append(all, c.describe())
	}
	if len(s.values) > 0 {
		all = append(all, countOf(len(s.values), "value"))
	}
	return strings.Join(all, ", ")
}

// describe describes a check.
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

// countOf returns a number and its noun, in the plural unless the number is 1.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
