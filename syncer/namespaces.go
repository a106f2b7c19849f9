package syncer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// addNamespaces checks the options' namespaces and adds them to n, the default one first.
func (o *Options) addNamespaces(n *keys.Namespaces) error {
	all := maps.Clone(o.Namespaces)
	if all == nil {
		all = map[string]Namespace{}
	}
	for name, ladder := range CompanionLadders() {
		all[name] = Namespace{Ladder: ladder, Unlisted: true}
		if twotier.IsSettledNamespace(name) { // a mark that was not seen may be set
			all[name] = Namespace{Ladder: ladder, Unlisted: true, OnCold: OnColdDeny}
		}
	}
	names := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(name string) bool {
		return name == twotier.DefaultNamespace
	})
	for _, name := range append([]string{twotier.DefaultNamespace}, names...) {
		ns := all[name]
		if err := ns.fill(name); err != nil {
			return err
		}
		n.Add(&keys.Namespace{Name: name, Ladder: ns.Ladder, DenyCold: ns.OnCold == OnColdDeny,
			MaxKeys: ns.MaxKeys, MostValues: ns.MostValues, Unlisted: ns.Unlisted,
			Marks: twotier.IsSettledNamespace(name), TTL: KeyTTL(ns.Ladder)})
	}
	if n.Len() > keys.MaxNamespaces {
		return fmt.Errorf("syncer: %d namespaces, with the default one and those of bans and "+
			"leases, want at most %d", n.Len(), keys.MaxNamespaces)
	}
	return nil
}

// KeyTTL returns the time to live of a key with this ladder, in milliseconds, from the first count
// in a bucket of the coarsest level.
func KeyTTL(l *leaparray.Ladder) int64 {
	// A bucket that was counted just before the time to live is next set must still exist when the
	// last window that touches it ends. That is a bucket's width after the span, plus how far ahead
	// of the clock its event may have been.
	return 2*l.Span() + l.CoarsestWidth() + leaparray.MaxAhead.Milliseconds()
}

// fill sets defaults and checks the rest.
func (ns *Namespace) fill(name string) error {
	if ns.Ladder == nil {
		ns.Ladder = leaparray.Default()
	}
	ns.OnCold = cmp.Or(ns.OnCold, OnColdAllow)
	if ns.OnCold != OnColdAllow && ns.OnCold != OnColdDeny {
		return fmt.Errorf("syncer: namespace %s: OnCold is %q, want %q or %q",
			name, ns.OnCold, OnColdAllow, OnColdDeny)
	}
	ns.MostValues = cmp.Or(ns.MostValues, leaparray.DefaultMostValues)
	if ns.MostValues < 1 || ns.MostValues > MostValues {
		return fmt.Errorf("syncer: namespace %s: MostValues is %d, want 1 to %d", name,
			ns.MostValues, MostValues)
	}
	if ns.MaxKeys < 0 {
		return fmt.Errorf("syncer: namespace %s: MaxKeys is %d, want 0 or more", name, ns.MaxKeys)
	}
	return nil
}
