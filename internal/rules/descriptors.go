package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// maxDepth bounds the nesting of descriptors. An alias can refer to a node that contains it.
const maxDepth = 32

// maxMultiplier bounds the units of a window, so that its length in milliseconds fits into 64 bits.
const maxMultiplier = 1_000_000

// domain reads a domain with its descriptors, in the format of envoyproxy/ratelimit. Several
// documents may add descriptors to one domain.
func (r *reader) domain(name, descriptors *strictyaml.Node) {
	text, ok := r.Text(name, "domain")
	if !ok {
		return
	}
	if text == "" {
		r.Fail(name, "domain: the name is empty")
		return
	}
	d := r.whole.domains[text]
	if d == nil {
		d = &Domain{Namespace: namespaceOf(text)}
		r.whole.domains[text] = d
	}
	if descriptors != nil {
		r.level(&d.level, descriptors, d, 1)
	}
}

// level reads a list of descriptors of a domain into to.
func (r *reader) level(to *level, list *strictyaml.Node, in *Domain, depth int) {
	if depth > maxDepth {
		r.Fail(list, "descriptors are nested more than %d deep", maxDepth)
		return
	}
	if to.exact == nil {
		to.exact, to.any = map[Entry]*descriptor{}, map[string]*descriptor{}
	}
	for _, item := range r.List(list, "descriptors") {
		d := draftDescriptor{item: item, in: in, depth: depth}
		r.descriptor(&d)
		r.placeDescriptor(to, &d)
	}
}

// draftDescriptor is a descriptor while it is being read.
type draftDescriptor struct {
	item   *strictyaml.Node
	in     *Domain
	depth  int
	entry  Entry
	shadow bool
	quota  bool
	charge bool
	warn   int64
	share  bool
	made   descriptor
}

func (r *reader) descriptor(d *draftDescriptor) {
	has := strictyaml.Mapping{Name: "a descriptor", Example: "key: remote_address",
		Fields: strictyaml.Fields{
			"key":   strictyaml.Text(&d.entry.Key),
			"value": unlessNull(strictyaml.Text(&d.entry.Value)),
			"rate_limit": unlessNull(func(_ *strictyaml.Reader, _ string, n *strictyaml.Node) {
				d.made.limit = r.rateLimit(n, d.in)
			}),
			"shadow_mode":     strictyaml.Parsed(&d.shadow, parseBoolean),
			"quota_mode":      strictyaml.Parsed(&d.quota, parseBoolean),
			"charge":          strictyaml.Parsed(&d.charge, parseCharge),
			"warn":            strictyaml.Parsed(&d.warn, parseWarn),
			"share_threshold": strictyaml.Parsed(&d.share, parseBoolean),
			"descriptors": func(_ *strictyaml.Reader, _ string, n *strictyaml.Node) {
				r.level(&d.made.below, n, d.in, d.depth+1)
			},
		},
		Each: func(key string, at, to *strictyaml.Node) {
			switch key {
			case "detailed_metric", "value_to_metric":
				on := false
				if strictyaml.Parsed(&on, parseBoolean)(r.Reader, key, to); on {
					r.ignore(at, "metrics never contain values of requests")
				}
			case "metadata":
				r.ignore(at, "it is not sent to Envoy")
			default:
				r.unknownOrMisplaced(at, "a descriptor has key, value, rate_limit, shadow_mode, "+
					"quota_mode, charge, warn, share_threshold and descriptors")
			}
		}}.Read(r.Reader, d.item)
	l := d.made.limit
	for _, name := range []string{"charge", "warn"} {
		if has[name] != nil && (l == nil || l.Unlimited) {
			r.Fail(has[name], "%s: the descriptor has no limit; want it beside a rate_limit with "+
				"requests_per_unit", name)
		}
	}
	if l == nil {
		return
	}
	l.Charge, l.Warn = d.charge, d.warn
	if d.shadow || d.quota {
		l.putInShadow()
	}
	l.Quota = d.quota && !d.shadow
}

func (r *reader) placeDescriptor(to *level, d *draftDescriptor) {
	made := &d.made
	star := strings.Contains(d.entry.Key+d.entry.Value, "*")
	if d.share {
		made.shared = cmp.Or(d.entry.Value, "*")
	}
	r.whole.source.Descriptors = append(r.whole.source.Descriptors,
		PlacedDescriptor{d.entry, r.Position(d.item)})
	switch {
	case d.entry.Key == "":
		r.Fail(d.item, "a descriptor without a key")
		return
	case d.share && !star:
		r.Fail(d.item, "share_threshold: neither the value nor the key has a star")
		return
	case d.entry.Value == "" && to.any[d.entry.Key] != nil, to.exact[d.entry] != nil:
		r.Fail(d.item, "there is a descriptor with the key %q and the value %q already",
			d.entry.Key, d.entry.Value)
		return
	case d.entry.Value == "":
		to.any[d.entry.Key] = made
	default:
		to.exact[d.entry] = made
	}
	if star {
		to.wildcards = append(to.wildcards, newWildcard(d.entry, made))
	}
}

// rateLimit reads the limit of a descriptor. Without requests_per_unit it allows no requests, as in
// envoyproxy/ratelimit.
func (r *reader) rateLimit(n *strictyaml.Node, in *Domain) *DescriptorLimit {
	l := &DescriptorLimit{Multiplier: 1}
	in.limits = append(in.limits, l)
	has := strictyaml.Mapping{Name: "rate_limit", Example: "unit: minute",
		Fields: strictyaml.Fields{
			"unit":              nil,
			"requests_per_unit": strictyaml.Parsed(&l.Max, parseNumber),
			"unit_multiplier":   strictyaml.Parsed(&l.Multiplier, parseMultiplier),
			"calendar":          nil,
			"unlimited":         strictyaml.Parsed(&l.Unlimited, parseBoolean),
			"name":              strictyaml.Text(&l.Name),
			"replaces":          strictyaml.Items(&l.Replaces, r.replaced),
		},
		Each: func(_ string, at, _ *strictyaml.Node) {
			r.unknownOrMisplaced(at, "rate_limit has unit, requests_per_unit, unit_multiplier, "+
				"calendar, unlimited, name and replaces")
		}}.Read(r.Reader, n)
	r.setUnit(n, l, has["unit"])
	if calendar := has["calendar"]; calendar != nil {
		r.calendar(l, calendar)
	}
	if !l.Unlimited {
		limit := l.Compared(int64(l.Max))
		r.addSourceLimit(PlacedLimit{Namespace: in.Namespace, At: r.Position(n),
			RuleLimit: twotier.RuleLimit{Window: limit.Window, Max: limit.Max,
				Text: spellUnits(l), Period: limit.Period}})
	}
	return l
}

// spellUnits returns a window with the unit's name in Envoy's API, such as 2 SECOND.
func spellUnits(l *DescriptorLimit) string {
	switch {
	case l.Calendar != nil:
		return l.Calendar.String()
	case l.Multiplier == 1:
		return l.Unit.String()
	}
	return fmt.Sprintf("%d %s", l.Multiplier, l.Unit)
}

// setUnit reads the unit of a limit, and checks that the limit does not replace itself.
func (r *reader) setUnit(n *strictyaml.Node, l *DescriptorLimit, unit *strictyaml.Node) {
	switch {
	case l.Unlimited:
		// Programs write unit: UNKNOWN for it.
		if unit != nil {
			if _, err := ParseUnit(unit.Value); err == nil {
				r.Fail(unit, "unit: an unlimited descriptor has none")
			}
		}
	case unit == nil:
		r.Fail(n, "rate_limit has no unit")
	default:
		strictyaml.Parsed(&l.Unit, ParseUnit)(r.Reader, "unit", unit)
	}
	for _, name := range l.Replaces {
		if name == l.Name {
			r.Fail(n, "replaces: a limit can't replace itself")
		}
	}
}

// calendar reads the time zone in which the unit of a descriptor's limit is a calendar window.
func (r *reader) calendar(l *DescriptorLimit, n *strictyaml.Node) {
	zone, ok := r.Text(n, "calendar")
	if !ok {
		return
	}
	if l.Unlimited || l.Multiplier != 1 {
		r.Fail(n, "calendar: want it without unlimited and unit_multiplier")
		return
	}
	unit := strings.ToLower(l.Unit.String())
	period, err := twotier.NewPeriod(unit, zone, twotier.DefaultAnchor)
	if err != nil {
		r.Fail(n, "calendar: %v", err)
		return
	}
	l.Calendar = period
}

// replaced reads an item of replaces, {name: TEXT}.
func (r *reader) replaced(item *strictyaml.Node) (name string) {
	strictyaml.Mapping{Name: "an item of replaces", Example: "name: other",
		Fields: strictyaml.Fields{"name": strictyaml.Text(&name)},
		Each: func(_ string, at, _ *strictyaml.Node) {
			r.unknownOrMisplaced(at, "an item of replaces has a name")
		}}.Read(r.Reader, item)
	if name == "" {
		r.Fail(item, "replaces: an item without a name")
	}
	return name
}

// unlessNull reads a value as if its key were missing when the value is empty.
func unlessNull(v strictyaml.Value) strictyaml.Value {
	return func(r *strictyaml.Reader, name string, n *strictyaml.Node) {
		if !strictyaml.IsNull(n) {
			v(r, name, n)
		}
	}
}

func parseNumber(text string) (uint32, error) {
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		v, err = strconv.ParseUint(text, 0, 32) // 1_000 and 0x10, as in YAML 1.1
	}
	if err != nil {
		err = fmt.Errorf("%q is not a number from 0 to 4294967295", text)
	}
	return uint32(v), err
}

func parseMultiplier(text string) (uint32, error) {
	v, err := parseNumber(text)
	if err == nil && (v < 1 || v > maxMultiplier) {
		err = fmt.Errorf("want 1 to %d", maxMultiplier)
	}
	return v, err
}

func parseBoolean(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "yes", "on", "y": // as in YAML 1.1
		return true, nil
	case "no", "off", "n":
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		err = fmt.Errorf("%q is neither true nor false", text)
	}
	return v, err
}
