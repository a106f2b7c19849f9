package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/strictyaml"
)

// Document is the content of a file of rules.
type Document struct {
	// Rules are the named rules.
	Rules   *twotier.RuleSet
	domains map[string]*Domain
	source  Source
}

// Domain returns the domain of that name, or nil if there is none.
func (d *Document) Domain(name string) *Domain { return d.domains[name] }

// putInShadow puts the rules and domains of namespaces in shadow into shadow.
func (d *Document) putInShadow(shadow twotier.Shadow) {
	d.Rules.PutInShadow(shadow)
	for _, domain := range d.domains {
		if shadow.In([]byte(domain.Namespace)) {
			domain.Shadow = true
			for _, l := range domain.limits {
				l.putInShadow()
			}
		}
	}
}

// EachWindow calls check for every window that the rules and domains judge, with the namespace it
// is counted in ("" is the default one), and with the longest of a calendar window. It returns the
// errors, each with its line and column, and stops after [strictyaml.MaxErrors] of them.
func (d *Document) EachWindow(check func(namespace string, ms int64) error) error {
	var errs []error
	for _, l := range d.source.Limits {
		if err := check(l.Namespace, l.Longest()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.At, err))
		}
		if len(errs) == strictyaml.MaxErrors {
			errs = append(errs, errors.New("there may be more; the others were not looked at"))
			break
		}
	}
	return errors.Join(errs...)
}

// Read reads a file of rules. path is its name in errors. A text with nothing but comments is an
// error: the file was probably emptied by mistake, and all rules would go with it.
func Read(path string, text []byte) (*Document, error) {
	r := newReader(path)
	if !r.readDocuments(text) && r.Err() == nil {
		return nil, fmt.Errorf("%s: there is nothing in it; write rules: [] to have no rules", path)
	}
	return r.result()
}

// ReadVersion is [Read] for a stored version. An empty text means no rules, which is the state
// before the first version.
func ReadVersion(path string, text []byte) (*Document, error) {
	r := newReader(path)
	r.readDocuments(text)
	return r.result()
}

// readDocuments reads all documents of a text, and reports whether any of them has content.
func (r *reader) readDocuments(text []byte) (said bool) {
	for _, top := range topNodes(r.Reader, text) {
		said = said || !strictyaml.IsNull(top)
		r.readDocument(top)
	}
	return said
}

// topNodes returns the top nodes of the documents of a text. A list, which is how JSON expresses
// several documents, stands for its items.
func topNodes(r *strictyaml.Reader, text []byte) (all []*strictyaml.Node) {
	for _, top := range r.Documents(text) {
		if strictyaml.IsList(top) {
			all = append(all, r.List(top, "the documents")...)
		} else {
			all = append(all, top)
		}
	}
	return all
}

// JSON converts a text to JSON, which [Read] reads as well: one object, or a list of several.
// Comments are lost, and aliases are replaced by copies of their anchors.
func JSON(text []byte) ([]byte, error) {
	r := strictyaml.New("rules")
	all := topNodes(r, text)
	if err := r.Err(); err != nil {
		return nil, err
	}
	switch len(all) {
	case 0:
		return []byte("{}"), nil
	case 1:
		return strictyaml.AppendJSON(nil, all[0])
	}
	return strictyaml.AppendJSONList(nil, all)
}

// Text converts a list of rules, such as one in a file of settings, to a text that [Read] reads.
func Text(list *strictyaml.Node) ([]byte, error) {
	text, err := strictyaml.AppendJSON([]byte("rules: "), list)
	return append(text, '\n'), err
}

// reader collects the content of a file.
type reader struct {
	*strictyaml.Reader
	whole Document
	rules []twotier.Rule
	seen  map[string]*strictyaml.Node // rules by name
	// defaults counts the default rules of each namespace, and onValues the limits on distinct
	// values that these may have for a key.
	defaults, onValues map[string]int
}

func newReader(path string) *reader {
	return &reader{Reader: strictyaml.New(path), seen: map[string]*strictyaml.Node{},
		defaults: map[string]int{}, onValues: map[string]int{},
		whole: Document{domains: map[string]*Domain{}}}
}

func (r *reader) result() (*Document, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	r.whole.Rules = twotier.NewRuleSet(r.rules)
	return &r.whole, nil
}

// readDocument reads one YAML document: rules, a domain, or both.
func (r *reader) readDocument(top *strictyaml.Node) {
	const fields = "a document has rules, or domain and descriptors"
	var others []*strictyaml.Node
	has := strictyaml.Mapping{Name: "the document", Example: "rules: []",
		Fields: strictyaml.Fields{"rules": r.ruleList, "domain": nil, "descriptors": nil},
		Each: func(_ string, at, _ *strictyaml.Node) {
			others = append(others, at)
		}}.Read(r.Reader, top)
	domain, descriptors := has["domain"], has["descriptors"]
	for _, at := range others {
		switch {
		case domain == nil:
			r.Unknown(at, at.Value, fields)
		case at.Value != "name": // Envoy Gateway names its documents
			r.unknownOrMisplaced(at, fields)
		}
	}
	switch {
	case domain != nil:
		r.domain(domain, descriptors)
	case descriptors != nil:
		r.Fail(descriptors, "descriptors without a domain")
	}
}

// Book holds the document in force. The zero value holds none: the rules are unknown yet.
type Book struct {
	// Shadow determines the namespaces in which no rule refuses. Optional; set it before the first
	// document.
	Shadow  twotier.Shadow
	current atomic.Pointer[edition]
}

// edition is a document with the number of its version.
type edition struct {
	domains map[string]*Domain
	rules   *twotier.RuleSet
}

// Set puts a document in force as that version, after putting its rules into shadow in the
// namespaces of Shadow. Decisions in progress still use the previous one.
func (b *Book) Set(d *Document, version int64) {
	if b.Shadow != nil {
		d.putInShadow(b.Shadow)
	}
	b.current.Store(&edition{domains: d.domains, rules: d.Rules.Numbered(version)})
}

// Rules returns the named rules in force, or nil if no document is in force.
func (b *Book) Rules() *twotier.RuleSet {
	if e := b.current.Load(); e != nil {
		return e.rules
	}
	return nil
}

// Domain returns the domain of that name in force, or nil if there is none, and the version of the
// document. known is false if no document is in force.
func (b *Book) Domain(name string) (d *Domain, version int64, known bool) {
	e := b.current.Load()
	if e == nil {
		return nil, 0, false
	}
	return e.domains[name], e.rules.Version(), true
}

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
