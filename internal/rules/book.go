package rules

import (
	"sync/atomic"

	"twotier.dev/twotier"
)

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
