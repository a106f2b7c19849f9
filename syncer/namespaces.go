package syncer

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// space is a namespace in the form that partitions use.
type space struct {
	name   string
	ladder *leaparray.Ladder
	onCold OnCold
	// maxKeys is the maximum number of keys in memory, 0 for no maximum; keys is the current
	// number.
	maxKeys int64
	keys    atomic.Int64
	// unlisted excludes the keys from lists.
	unlisted bool
	// ttl is a key's time to live in the store, in milliseconds. It is a little more than twice the
	// longest span, so it is enough to set it with the first count in a bucket of the coarsest
	// level.
	ttl int64
}

// namespaces holds the namespaces of a counter's options. Only their numbers of keys change.
type namespaces struct {
	seed   maphash.Seed
	all    []*space       // the first is the default one
	byName map[string]int // position in all
}

// maxSpaces is the largest number of namespaces: an entry has 8 bits for its namespace.
const maxSpaces = 256

// init checks the options' namespaces and adds them.
func (n *namespaces) init(opt *Options) error {
	n.seed, n.byName = maphash.MakeSeed(), map[string]int{}
	if err := n.add(twotier.DefaultNamespace,
		opt.Namespaces[twotier.DefaultNamespace]); err != nil {
		return err
	}
	bans := Namespace{Ladder: BanLadder(), Unlisted: true}
	if err := n.add(twotier.BanNamespace, bans); err != nil {
		return err
	}
	for name, ns := range opt.Namespaces {
		if name == twotier.DefaultNamespace || name == twotier.BanNamespace {
			continue
		}
		if err := n.add(name, ns); err != nil {
			return err
		}
	}
	if len(n.all) > maxSpaces {
		return fmt.Errorf("syncer: %d namespaces, with the default one and that of bans, want at "+
			"most %d", len(n.all), maxSpaces)
	}
	return nil
}

// add adds a namespace.
func (n *namespaces) add(name string, ns Namespace) error {
	if err := ns.fill(name); err != nil {
		return err
	}
	l := ns.Ladder
	n.byName[name] = len(n.all)
	n.all = append(n.all, &space{
		name: name, ladder: l, onCold: ns.OnCold, maxKeys: ns.MaxKeys,
		unlisted: ns.Unlisted,
		ttl:      KeyTTL(l),
	})
	return nil
}

// KeyTTL returns the time to live of a key with this ladder, in milliseconds, from the first count
// in a bucket of the coarsest level.
func KeyTTL(l *leaparray.Ladder) int64 { return LevelTTL(l.Levels()[l.Len()-1]) }

// LevelTTL is KeyTTL of a ladder with this coarsest level.
func LevelTTL(l leaparray.Level) int64 {
	// A bucket that was counted just before the time to live is next set must still exist when the
	// last window that touches it ends. That is a bucket's width after the span, plus how far ahead
	// of the clock its event may have been.
	margin := l.Width + leaparray.MaxAhead
	return 2*l.Span().Milliseconds() + margin.Milliseconds()
}

// fill sets defaults and checks the rest.
func (ns *Namespace) fill(name string) error {
	if ns.Ladder == nil {
		ns.Ladder = leaparray.Default()
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

// index returns the position of a namespace, or the default one's if it is not configured.
func (n *namespaces) index(ns []byte) int {
	if isDefaultSpace(ns) {
		return 0
	}
	if i, ok := n.byName[string(ns)]; ok {
		return i
	}
	if twotier.IsBan(ns) {
		return n.byName[twotier.BanNamespace]
	}
	return 0
}

// of returns a namespace, or the default one if it is not configured.
func (n *namespaces) of(ns []byte) *space { return n.all[n.index(ns)] }

// ladder returns the ladder of a namespace.
func (n *namespaces) ladder(ns []byte) *leaparray.Ladder { return n.of(ns).ladder }

// hash returns the hash of a key in the table of its partition. ns is empty for the default
// namespace.
func (n *namespaces) hash(ns, key []byte) uint32 {
	h := maphash.Bytes(n.seed, key)
	if len(ns) > 0 {
		h = h*31 + maphash.Bytes(n.seed, ns)
	}
	return uint32(h>>32) ^ uint32(h)
}

// longestSpan returns the longest span of any namespace that clients use, in milliseconds.
func (n *namespaces) longestSpan() (span int64) {
	for _, sp := range n.all {
		if sp.name != twotier.BanNamespace {
			span = max(span, sp.ladder.Span())
		}
	}
	return span
}

// directory finds the partition and the namespace of a key.
type directory struct {
	placement  twotier.Placement
	parts      []partition
	namespaces namespaces
}

// locate finds the partition and namespace of a check.
func (d *directory) locate(t *target, check *twotier.Check) {
	t.check = check
	if !isDefaultSpace(check.NS) {
		t.ns = check.NS
		t.spIdx = d.namespaces.index(check.NS)
	}
	t.sp = d.namespaces.all[t.spIdx]
	t.p = d.partitionOf(check)
	t.hash = d.namespaces.hash(t.ns, check.Key)
}

// partitionOf returns the partition of a check's key.
func (d *directory) partitionOf(check *twotier.Check) *partition {
	return &d.parts[d.placement.Of(check.NS, check.Key)]
}

func isDefaultSpace(ns []byte) bool {
	return len(ns) == 0 ||
		string(ns) == twotier.DefaultNamespace
}
