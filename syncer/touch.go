package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
)

// touchDirty touches the next entries of the dirty list.
func (b *ledger) touchDirty() {
	next := b.dirty.waiting()
	b.keys.Touch(next[:min(len(next), keys.TouchAtOnce)])
}

// touchKeys touches the entries and counters of the next keys of a round.
func (b *ledger) touchKeys(parts []part) {
	refs := make([]arena.Ref, 0, keys.TouchAtOnce)
	for i := range parts[:min(len(parts), keys.TouchAtOnce)] {
		refs = append(refs, parts[i].ref)
	}
	b.keys.Touch(refs)
}
