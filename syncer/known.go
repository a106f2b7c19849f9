package syncer

import (
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
)

// EachUnflushed calls fn for every key with counts that the store has not acknowledged, which would
// be lost if the process ended now. n is their sum on the coarsest level. It is zero if as much was
// taken back as was counted, although the store may have one of both already. For a key of
// different values, n is their number. ns is empty for the default namespace. fn must not keep the
// names. Without a store there is nothing to flush.
func (c *Counter) EachUnflushed(fn func(ns, key []byte, n int64)) {
	if c.opt.Store == nil {
		return
	}
	for p := range c.locked() {
		for _, e := range p.keys.All() {
			if e.HasPending() || e.HasFlag(keys.FlagBusy) {
				ns, key := e.Name()
				n := p.keys.ValuesOf(e).B.Len()
				fn(ns, key, int64(n)+p.keys.Ladder(e).Total(p.keys.PendingOf(e)))
			}
		}
	}
}

// EachSynced calls fn for every key with its synced counts, in partitions that this counter decides
// about. They can be restored if the store loses everything. The arguments are as in
// [Counter.EachUnflushed].
func (c *Counter) EachSynced(fn func(ns, key []byte, n int64)) {
	for p := range c.locked() {
		if p.ownership == notOwned {
			continue
		}
		for _, e := range p.keys.All() {
			n := p.keys.ValuesOf(e).A.Len()
			if sum := int64(n) + p.keys.Ladder(e).Total(p.keys.SyncedOf(e)); sum != 0 {
				ns, key := e.Name()
				fn(ns, key, sum)
			}
		}
	}
}

// EachValues calls fn for every key of different values with those that [Counter.EachSynced] counts
// (A) and those that [Counter.EachUnflushed] counts (B). fn must not keep its arguments.
func (c *Counter) EachValues(fn func(ns, key []byte, v leaparray.ValuesView)) {
	for p := range c.locked() {
		for _, e := range p.keys.All() {
			if e.IsValues() {
				ns, key := e.Name()
				v := p.keys.ValuesOf(e)
				if p.ownership == notOwned {
					v.A = nil
				}
				fn(ns, key, v)
			}
		}
	}
}
