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
		d = &Domain{Namespace: NamespaceOf(text)}
		r.whole.domains[text] = d
	}
	if descriptors != nil {
		r.level(&d.level, descriptors, d.Namespace, 1)
	}
}

// level reads a list of descriptors into to.
func (r *reader) level(to *level, list *strictyaml.Node, namespace string, depth int) {
	if depth > maxDepth {
		r.Fail(list, "descriptors are nested more than %d deep", maxDepth)
		return
	}
	if to.exact == nil {
		to.exact, to.any = map[Entry]*descriptor{}, map[string]*descriptor{}
	}
	for _, item := range r.List(list, "descriptors") {
		d := draftDescriptor{item: item, namespace: namespace, depth: depth}
		r.descriptor(&d)
		r.placeDescriptor(to, &d)
	}
}

// draftDescriptor is a descriptor while it is being read.
type draftDescriptor struct {
	item      *strictyaml.Node
	namespace string
	depth     int
	entry     Entry
	shadow    bool
	quota     bool
	charge    bool
	warn      int64
	share     bool
	made      descriptor
}

// descriptor reads one descriptor.
func (r *reader) descriptor(d *draftDescriptor) {
	var charge, warn *strictyaml.Node
	strictyaml.Mapping{Name: "a descriptor", Example: "key: remote_address",
		Each: func(key string, at, to *strictyaml.Node) {
			switch key {
			case "key":
				d.entry.Key, _ = r.Text(to, "key")
			case "value":
				if !strictyaml.IsNull(to) { // as if there were no value
					d.entry.Value, _ = r.Text(to, "value")
				}
			case "rate_limit":
				if !strictyaml.IsNull(to) {
					d.made.limit = r.rateLimit(to, d.namespace)
				}
			case "shadow_mode":
				d.shadow = r.boolean(to, key)
			case "quota_mode":
				d.quota = r.boolean(to, key)
			case "charge":
				charge, d.charge = to, r.charge(to)
			case "warn":
				warn, d.warn = to, r.warn(to)
			case "share_threshold":
				d.share = r.boolean(to, key)
			case "detailed_metric", "value_to_metric":
				if r.boolean(to, key) {
					r.ignore(at, "metrics never contain values of requests")
				}
			case "metadata":
				r.ignore(at, "it is not sent to Envoy")
			case "descriptors":
				r.level(&d.made.below, to, d.namespace, d.depth+1)
			default:
				r.unknownOrMisplaced(at, "a descriptor has key, value, rate_limit, shadow_mode, "+
					"quota_mode, charge, warn, share_threshold and descriptors")
			}
		}}.Read(r.Reader, d.item)
	if d.made.limit == nil || d.made.limit.Unlimited {
		r.failWithoutLimit(charge, "charge")
		r.failWithoutLimit(warn, "warn")
	}
	if d.made.limit != nil {
		d.setMode()
	}
}

// setMode sets the limit's fields that stand beside rate_limit.
func (d *draftDescriptor) setMode() {
	l := d.made.limit
	l.Charge, l.Warn = d.charge, d.warn
	if d.shadow || d.quota {
		l.putInShadow()
	}
	l.Quota = d.quota && !d.shadow
}

// failWithoutLimit adds a mistake if a descriptor without a limit has a field about its limit.
func (r *reader) failWithoutLimit(field *strictyaml.Node, name string) {
	if field != nil {
		r.Fail(field, "%s: the descriptor has no limit; want it beside a rate_limit with "+
			"requests_per_unit", name)
	}
}

// placeDescriptor adds a descriptor to its level.
func (r *reader) placeDescriptor(to *level, d *draftDescriptor) {
	made := &d.made
	star := d.entry.hasStar()
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
func (r *reader) rateLimit(n *strictyaml.Node, namespace string) *DescriptorLimit {
	l := &DescriptorLimit{Multiplier: 1}
	var unit, calendar *strictyaml.Node
	strictyaml.Mapping{Name: "rate_limit", Example: "unit: minute",
		Each: func(key string, at, to *strictyaml.Node) {
			switch key {
			case "unit":
				unit = to
			case "requests_per_unit":
				l.Max = r.number(to, key)
			case "unit_multiplier":
				l.Multiplier = r.number(to, key)
				if l.Multiplier < 1 || l.Multiplier > maxMultiplier {
					r.Fail(to, "unit_multiplier: want 1 to %d", maxMultiplier)
				}
			case "calendar":
				calendar = to
			case "unlimited":
				l.Unlimited = r.boolean(to, key)
			case "name":
				l.Name, _ = r.Text(to, "name")
			case "replaces":
				l.Replaces = r.replaces(to)
			default:
				r.unknownOrMisplaced(at, "rate_limit has unit, requests_per_unit, "+
					"unit_multiplier, calendar, unlimited, name and replaces")
			}
		}}.Read(r.Reader, n)
	r.setUnit(n, l, unit)
	if calendar != nil {
		r.calendar(l, calendar)
	}
	if !l.Unlimited {
		limit := l.Compared(int64(l.Max))
		r.addSourceLimit(PlacedLimit{Namespace: namespace, At: r.Position(n),
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
		l.Unit = r.unit(unit)
	}
	for _, name := range l.Replaces {
		if name == l.Name {
			r.Fail(n, "replaces: a limit can't replace itself")
		}
	}
}

// replaces reads a list of {name: TEXT}.
func (r *reader) replaces(list *strictyaml.Node) (names []string) {
	for _, item := range r.List(list, "replaces") {
		name := ""
		strictyaml.Mapping{Name: "an item of replaces", Example: "name: other",
			Each: func(key string, at, to *strictyaml.Node) {
				if key != "name" {
					r.unknownOrMisplaced(at, "an item of replaces has a name")
					return
				}
				name, _ = r.Text(to, "name")
			}}.Read(r.Reader, item)
		if name == "" {
			r.Fail(item, "replaces: an item without a name")
			continue
		}
		names = append(names, name)
	}
	return names
}

func (r *reader) unit(n *strictyaml.Node) Unit {
	text, ok := r.Text(n, "unit")
	if !ok {
		return Second
	}
	u, err := ParseUnit(text)
	if err != nil {
		r.Fail(n, "unit: %v", err)
	}
	return u
}

func (r *reader) number(n *strictyaml.Node, name string) uint32 {
	text, ok := r.Text(n, name)
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		v, err = strconv.ParseUint(text, 0, 32) // 1_000 and 0x10, as in YAML 1.1
	}
	if err != nil {
		r.Fail(n, "%s: %q is not a number from 0 to 4294967295", name, text)
	}
	return uint32(v)
}

func (r *reader) boolean(n *strictyaml.Node, name string) bool {
	text, ok := r.Text(n, name)
	if !ok {
		return false
	}
	switch strings.ToLower(text) {
	case "yes", "on", "y": // as in YAML 1.1
		return true
	case "no", "off", "n":
		return false
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		r.Fail(n, "%s: %q is neither true nor false", name, text)
	}
	return v
}
