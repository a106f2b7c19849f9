package syncer

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"twotier.dev/twotier/leaparray"
)

// space is a namespace as the partitions use it.
type space struct {
	name   string
	ladder *leaparray.Ladder
	onCold OnCold
	// maxKeys is how many keys may be in memory, 0 for any number; keys how many are.
	maxKeys int64
	keys    atomic.Int64
	aging   bool // the store deletes buckets by their age
	// ttl is the time to live of a key in the store in milliseconds: a little more than twice the
	// longest span, so that setting it along with the first count in a bucket of the coarsest level
	// is enough.
	ttl int64
}

// namespaces are those of a counter's options. They don't change, but for the number of keys.
type namespaces struct {
	seed   maphash.Seed
	all    []*space       // the first is the default one
	byName map[string]int // position in all
}

// init checks and takes over the namespaces of options.
func (n *namespaces) init(opt *Options) error {
	n.seed, n.byName = maphash.MakeSeed(), map[string]int{}
	ager, _ := opt.Store.(Ager)
	aging := ager != nil && ager.Aging()
	if err := n.add(DefaultNamespace, opt.Namespaces[DefaultNamespace], aging); err != nil {
		return err
	}
	for name, ns := range opt.Namespaces {
		if name == DefaultNamespace {
			continue
		}
		if err := n.add(name, ns, aging); err != nil {
			return err
		}
	}
	return nil
}

// add adds a namespace. aging says that the store deletes buckets by their age.
func (n *namespaces) add(name string, ns Namespace, aging bool) error {
	if err := ns.fill(name); err != nil {
		return err
	}
	l := ns.Ladder
	// A bucket that is counted just before the time to live is set again must still be there when
	// the last window that touches it ends: a bucket's width after the span, and counted from when
	// it may have been early.
	margin := l.Width(l.Len()-1) + leaparray.MaxAhead.Milliseconds()
	n.byName[name] = len(n.all)
	n.all = append(n.all, &space{
		name: name, ladder: l, onCold: ns.OnCold, maxKeys: ns.MaxKeys, aging: aging,
		ttl: 2*l.Span() + margin,
	})
	return nil
}

// fill sets defaults and checks the rest.
func (ns *Namespace) fill(name string) error {
	if ns.Ladder == nil {
		l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
		if err != nil {
			return err
		}
		ns.Ladder = l
	}
	if ns.OnCold == "" {
		ns.OnCold = OnColdAllow
	}
	if ns.OnCold != OnColdAllow && ns.OnCold != OnColdDeny {
		return fmt.Errorf("syncer: namespace %s: OnCold is %q, want %q or %q",
			name, ns.OnCold, OnColdAllow, OnColdDeny)
	}
	if ns.MaxKeys < 0 {
		return fmt.Errorf("syncer: namespace %s: MaxKeys is %d, want 0 or more", name, ns.MaxKeys)
	}
	return nil
}

// index is the position of a namespace, that of the default one if it is not listed.
func (n *namespaces) index(ns []byte) int {
	if i, ok := n.byName[string(ns)]; ok {
		return i
	}
	return 0
}

// of is a namespace, the default one if it is not listed.
func (n *namespaces) of(ns []byte) *space { return n.all[n.index(ns)] }

// ladder is that of a namespace.
func (n *namespaces) ladder(ns []byte) *leaparray.Ladder { return n.of(ns).ladder }

// hash is what a key is found by within its partition. ns is empty for the default namespace.
func (n *namespaces) hash(ns, key []byte) uint32 {
	h := maphash.Bytes(n.seed, key)
	if len(ns) > 0 {
		h = h*31 + maphash.Bytes(n.seed, ns)
	}
	return uint32(h>>32) ^ uint32(h)
}

// longestSpan is the longest that any namespace covers, in milliseconds.
func (n *namespaces) longestSpan() (span int64) {
	for _, sp := range n.all {
		span = max(span, sp.ladder.Span())
	}
	return span
}
