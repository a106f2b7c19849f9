package rules

import (
	"encoding/json"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// Source lists the parts of a document, in their order, with positions as FILE:LINE:COLUMN. It
// serves checks on the document as written.
type Source struct {
	Rules       []PlacedRule
	Overrides   []PlacedOverride
	Limits      []PlacedLimit
	Descriptors []PlacedDescriptor
	// Ignored are the first places of keys without an effect, one for each key and reason.
	Ignored []IgnoredKey
}

// IgnoredKey is a key of envoyproxy/ratelimit that has no effect, at one or more places.
type IgnoredKey struct {
	Key, Reason string
	At          string // the first place
	Places      int
}

// PlacedRule is a named rule.
type PlacedRule struct {
	*twotier.Rule
	At string
}

// PlacedOverride is an override of the rule of that name.
type PlacedOverride struct {
	twotier.Override
	Rule, At string
}

// PlacedLimit is a limit of a rule, of one of its overrides, or of a descriptor.
type PlacedLimit struct {
	twotier.RuleLimit
	// Namespace is "" for the default one, and Rule is "" for descriptors.
	Namespace, Rule string
	// Distinct marks a limit on distinct values.
	Distinct bool
	// List is 0 for the rule's own limits, and n for the limits of its n-th override.
	List int
	At   string
	// MaxAt is the position of the maximum, or of the text that begins with it.
	MaxAt string
}

// PlacedDescriptor is a descriptor of a domain.
type PlacedDescriptor struct {
	Entry
	At string
}

// Source returns the parts of the document.
func (d *Document) Source() *Source { return &d.source }

// addSourceRule adds a rule to the source, with its limits and overrides.
func (r *reader) addSourceRule(one *twotier.Rule, has map[string]*strictyaml.Node) {
	to := &r.whole.source
	to.Rules = append(to.Rules, PlacedRule{one, r.Position(has["name"])})
	r.addSourceLimits(one, one.Limits, has["limits"], 0, false)
	r.addSourceLimits(one, one.Distinct, has["distinct"], 0, true)
	for i, o := range one.Overrides {
		at := strictyaml.Resolve(has["overrides"].Content[i])
		to.Overrides = append(to.Overrides, PlacedOverride{o, one.Name, r.Position(at)})
		r.addSourceLimits(one, o.Limits, at, i+1, false)
		r.addSourceLimits(one, o.Distinct, at, i+1, true)
	}
}

// addSourceLimits adds limits of a rule to the source. They are the items of a list, or all come
// from one value.
func (r *reader) addSourceLimits(one *twotier.Rule, limits []twotier.RuleLimit, at *strictyaml.Node,
	list int, distinct bool) {
	var items []*strictyaml.Node
	if len(limits) > 0 && strictyaml.IsList(at) {
		items = slices.DeleteFunc(slices.Clone(at.Content), isConcurrent)
	}
	for i, l := range limits {
		where := at
		if len(items) == len(limits) {
			where = items[i]
		}
		r.addSourceLimit(PlacedLimit{RuleLimit: l, Namespace: one.Namespace, Rule: one.Name,
			Distinct: distinct, List: list, At: r.Position(where),
			MaxAt: r.Position(maximumOf(where))})
	}
}

// maximumOf returns the node of a limit's maximum, or of the text that begins with it.
func maximumOf(limit *strictyaml.Node) *strictyaml.Node {
	limit = strictyaml.Resolve(limit)
	if strictyaml.IsMapping(limit) {
		for pair := range slices.Chunk(limit.Content, 2) {
			if pair[0].Value == "max" {
				return strictyaml.Resolve(pair[1])
			}
		}
	}
	return limit
}

func (r *reader) addSourceLimit(l PlacedLimit) {
	r.whole.source.Limits = append(r.whole.source.Limits, l)
}

// envoyKeys are the keys of envoyproxy/ratelimit. It accepts each of them in any mapping, and
// ignores those in the wrong place.
var envoyKeys = [...]string{"domain", "key", "value", "descriptors", "rate_limit", "unit",
	"requests_per_unit", "unit_multiplier", "unlimited", "shadow_mode", "quota_mode", "name",
	"replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}

// unknownOrMisplaced refuses an unknown key, and ignores one of envoyproxy/ratelimit that stands in
// the wrong place. valid lists the keys of the mapping.
func (r *reader) unknownOrMisplaced(at *strictyaml.Node, valid string) {
	if !slices.Contains(envoyKeys[:], at.Value) {
		r.Unknown(at, at.Value, valid)
		return
	}
	r.ignore(at, "it stands in the wrong place: "+valid)
}

// ignore adds a key without an effect to the source.
func (r *reader) ignore(at *strictyaml.Node, reason string) {
	list := r.whole.source.Ignored
	for i := range list {
		if list[i].Key == at.Value && list[i].Reason == reason {
			list[i].Places++
			return
		}
	}
	r.whole.source.Ignored = append(list, IgnoredKey{at.Value, reason, r.Position(at), 1})
}

// namedLimit is a limit of a named rule, and the place of its maximum.
type namedLimit struct {
	Rule   string `json:"rule"`
	Window string `json:"window"`
	Max    int64  `json:"max"`
	At     string `json:"at"`
}

// Limits lists the limits of the named rules of a stored version as JSON, in their order, each with
// the position of its maximum as rules:LINE:COLUMN: an editor replaces the digits there. Limits of
// overrides, on distinct values and on concurrent holds are left out.
func Limits(text []byte) ([]byte, error) {
	doc, err := ReadVersion("rules", text)
	if err != nil {
		return nil, err
	}
	list := []namedLimit{}
	for _, l := range doc.source.Limits {
		if l.Rule != "" && l.List == 0 && !l.Distinct {
			list = append(list, namedLimit{l.Rule, l.Text, l.Max, l.MaxAt})
		}
	}
	return json.Marshal(list)
}
