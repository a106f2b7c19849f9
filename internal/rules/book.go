package rules

import (
	"sync/atomic"

	"twotier.dev/twotier/httpapi/rule"
)

// Book holds the document in force. The zero value holds none: what the rules are is not known yet.
type Book struct{ current atomic.Pointer[edition] }

// edition is a document with the number of its version.
type edition struct {
	domains map[string]*Domain
	rules   *rule.Set
}

// Set puts a document in force as that version. Decisions that have begun still use the one before.
func (b *Book) Set(d *Document, version int64) {
	b.current.Store(&edition{domains: d.domains, rules: d.Rules.Numbered(version)})
}

// Rules returns the rules with names that are in force, or nil if no document is.
func (b *Book) Rules() *rule.Set {
	if e := b.current.Load(); e != nil {
		return e.rules
	}
	return nil
}

// Domain returns a domain in force, or nil if there is none of that name, and the version that it
// is of. known is false if no document is in force.
func (b *Book) Domain(name string) (d *Domain, version int64, known bool) {
	e := b.current.Load()
	if e == nil {
		return nil, 0, false
	}
	return e.domains[name], e.rules.Version(), true
}
