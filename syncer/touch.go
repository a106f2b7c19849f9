package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// touchDirty touches the next entries of the dirty list.
func (b *ledger) touchDirty() {
	next := b.dirty.Waiting()
	b.keys.Touch(next[:min(len(next), keys.TouchAtOnce)])
}

// touchKeys touches the entries and counters of the next keys of a round.
func (b *ledger) touchKeys(parts []rounds.Part) {
	refs := make([]arena.Ref, 0, keys.TouchAtOnce)
	for i := range parts[:min(len(parts), keys.TouchAtOnce)] {
		refs = append(refs, parts[i].Ref)
	}
	b.keys.Touch(refs)
}
