package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
)

// Domain holds the limits of one domain of Envoy's rate limit service.
type Domain struct {
	// Namespace is where its descriptors are counted: the name of the domain, or a hash of a name
	// that is not valid for a namespace.
	Namespace string
	// Shadow is set if none of its limits refuses, nor those in requests.
	Shadow bool
	limits []*DescriptorLimit // of all descriptors
	level
}

// Entry is one pair of a request's descriptor.
type Entry struct{ Key, Value string }

// DescriptorLimit is the limit at one descriptor of a document.
type DescriptorLimit struct {
	// Name is the name that Replaces of other limits can refer to; "" for none.
	Name string
	// Replaces are the names of limits that don't apply to a request to which this one applies.
	Replaces []string
	// Unlimited means that nothing is counted; the other numbers are then meaningless.
	Unlimited bool
	// Max is the number of requests in any Multiplier units.
	Max        uint32
	Unit       Unit
	Multiplier uint32
	// Calendar is the calendar period in place of a sliding window, or nil.
	Calendar *twotier.Period
	// Shadow marks a limit that is judged, but never refuses.
	Shadow bool
	// Quota marks a limit in shadow whose state Envoy receives, to route by it.
	Quota bool
	// Charge makes a request that the limit judges count, even if it is refused.
	Charge bool
	// Warn is the percentage of Max, 1 to 100, from which a count is near the limit; 0 means no
	// warnings.
	Warn int64
}

// Window returns the length of the window in milliseconds.
func (l *DescriptorLimit) Window() int64 { return int64(l.Multiplier) * l.Unit.Milliseconds() }

// Compared returns the limit to compare with, of a maximum that may differ from Max.
func (l *DescriptorLimit) Compared(most int64) twotier.Limit {
	if l.Calendar != nil {
		return twotier.Limit{Max: most, Period: l.Calendar}
	}
	return twotier.Limit{Max: most, Window: l.Window()}
}

// Rule returns a rule of the given namespace with the limit's name, state and warning level.
func (l *DescriptorLimit) Rule(namespace string) twotier.Rule {
	r := twotier.Rule{Name: l.Name, Namespace: namespace, Warn: l.Warn}
	if l.Shadow {
		r.State = twotier.RuleShadow
	}
	return r
}

// level holds the descriptors of a document below another one or at its top.
type level struct {
	exact     map[Entry]*descriptor
	any       map[string]*descriptor // by key, for descriptors without a value
	wildcards []wildcard             // in the order of the document
}

// putInShadow makes the limit refuse nothing. So it charges nothing, either.
func (l *DescriptorLimit) putInShadow() { l.Shadow, l.Quota, l.Charge = true, false, false }

type descriptor struct {
	limit *DescriptorLimit // nil if the descriptor has none
	below level
	// shared is the value, with its stars, under which all matching values are counted together; ""
	// if each value has a separate count.
	shared string
}

// Find returns the limit for a request's descriptor, and the descriptor under which it is counted.
// The limit is nil if there is none. At every level Find takes the most specific descriptor (the
// one with the value; else the first whose stars match; else the one without a value), and the
// document must be as deep as the request.
func (d *Domain) Find(entries []Entry) (*DescriptorLimit, []Entry) {
	at, counted := &d.level, entries
	for i, e := range entries {
		found := at.find(e)
		if found == nil {
			return nil, nil
		}
		if found.shared != "" {
			if &counted[0] == &entries[0] {
				counted = append([]Entry(nil), entries...)
			}
			counted[i].Value = found.shared
		}
		if i == len(entries)-1 {
			return found.limit, counted
		}
		at = &found.below
	}
	return nil, nil
}

func (l *level) find(e Entry) *descriptor {
	if to := l.exact[e]; to != nil {
		return to
	}
	for i := range l.wildcards {
		if w := &l.wildcards[i]; w.matches(e) {
			return w.to
		}
	}
	return l.any[e.Key]
}

// namespaceOf returns the namespace of a domain.
func namespaceOf(domain string) string {
	if config.CheckName(domain) == nil {
		return domain
	}
	sum := sha256.Sum256([]byte(domain))
	return "domain-" + hex.EncodeToString(sum[:16])
}

// wildcard is a descriptor with stars, each of which stands for any text, in its key or its value.
type wildcard struct {
	key   string   // "" if the key has a star
	parts []string // the text around the stars: of the value or, if the key has a star, of both
	to    *descriptor
}

func newWildcard(e Entry, to *descriptor) wildcard {
	if !strings.Contains(e.Key, "*") {
		return wildcard{e.Key, strings.Split(e.Value, "*"), to}
	}
	text := e.Key
	if e.Value != "" {
		text = joinEntry(e)
	}
	return wildcard{"", strings.Split(text, "*"), to}
}

// joinEntry returns an entry as envoyproxy/ratelimit compares it with stars, such as tenant_7_read
// of the key tenant_7. So the key tenant_* without a value matches every value, too.
func joinEntry(e Entry) string { return e.Key + "_" + e.Value }

func (w *wildcard) matches(e Entry) bool {
	if w.key == "" {
		return matchesParts(w.parts, joinEntry(e))
	}
	return w.key == e.Key && matchesParts(w.parts, e.Value)
}

// matchesParts reports whether a text consists of two or more parts, in their order, with any text
// between them.
func matchesParts(parts []string, text string) bool {
	last := len(parts) - 1
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		_, rest, ok = strings.Cut(rest, part)
		if !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// HasDeadStar reports whether the descriptor has a star that probably matches nothing: without a
// value, the text behind the last star of a key is compared with the end of a request's value.
func (d *PlacedDescriptor) HasDeadStar() bool {
	return d.Value == "" && strings.Contains(d.Key, "*") && !strings.HasSuffix(d.Key, "*")
}

// Unit is a unit of time in Envoy's API.
type Unit uint8

// The units of limits.
const (
	Second Unit = iota
	Minute
	Hour
	Day
	Week
	Month
	Year
)

// unitNames are the names of the units, in their order.
var unitNames = [...]string{"SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"}

// unitSeconds are the lengths of the units; a month has 30 days and a year 365, as in
// envoyproxy/ratelimit.
var unitSeconds = [...]int64{1, 60, 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400}

// String returns the name in Envoy's API, such as MINUTE.
func (u Unit) String() string { return unitNames[u] }

// Milliseconds returns the length of the unit.
func (u Unit) Milliseconds() int64 { return unitSeconds[u] * 1000 }

// ParseUnit reads the name of a unit in any case.
func ParseUnit(text string) (Unit, error) {
	i := slices.Index(unitNames[:], strings.ToUpper(text))
	if i < 0 {
		return 0, fmt.Errorf("%q is not one of second, minute, hour, day, week, month and year",
			text)
	}
	return Unit(i), nil
}
