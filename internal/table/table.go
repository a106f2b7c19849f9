package table

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
)

// Table finds blocks by hash. Make one with [New].
type Table struct {
	pool  *slab.Pool
	slots []uint64 // ref and hash, 32 bits each; 0 if empty
	used  int
}

const minSlots = 16

// New returns an empty table that takes its memory from pool.
func New(pool *slab.Pool) Table { return Table{pool: pool} }

// NewEmpty returns another, empty table with the same pool.
func (t *Table) NewEmpty() Table { return Table{pool: t.pool} }

// Len returns the number of blocks in the table.
func (t *Table) Len() int { return t.used }

// Slots returns the number of slots, a power of two or 0. Only Insert, Shrink and Drop change it.
func (t *Table) Slots() int { return len(t.slots) }

// RefAt returns the block in a slot, or 0 if the slot is empty.
func (t *Table) RefAt(slot int) arena.Ref { return arena.Ref(t.slots[slot] >> 32) }

// HashAt returns the hash under which the block in a slot is stored.
func (t *Table) HashAt(slot int) uint32 { return uint32(t.slots[slot]) }

// Replace replaces the block in a slot by another one with the same hash.
func (t *Table) Replace(slot int, r arena.Ref) { t.slots[slot] = slotOf(t.HashAt(slot), r) }

func slotOf(hash uint32, r arena.Ref) uint64 { return uint64(r)<<32 | uint64(hash) }

// Find calls match for the blocks stored under a hash until it returns true, and returns that
// block, or 0.
func (t *Table) Find(hash uint32, match func(arena.Ref) bool) arena.Ref {
	if t.used == 0 {
		return 0
	}
	mask := uint32(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return 0
		}
		if uint32(s) == hash && match(arena.Ref(s>>32)) {
			return arena.Ref(s >> 32)
		}
	}
}

// Prefetch reads the first slot that Find would read, to bring it into the processor's cache. Its
// result only keeps the compiler from optimizing the read away.
func (t *Table) Prefetch(hash uint32) uint64 {
	if len(t.slots) == 0 {
		return 0
	}
	return t.slots[int(hash)&(len(t.slots)-1)]
}

// Insert stores a block under a hash. The block must not be 0.
func (t *Table) Insert(hash uint32, r arena.Ref) {
	if (t.used+1)*5 > len(t.slots)*4 {
		t.resize(max(minSlots, len(t.slots)*2))
	}
	t.insertSlot(slotOf(hash, r))
	t.used++
}

func (t *Table) insertSlot(s uint64) {
	mask := uint32(len(t.slots) - 1)
	i := uint32(s) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *Table) resize(size int) {
	old := t.slots
	t.slots = t.pool.Take(size)
	for _, s := range old {
		if s != 0 {
			t.insertSlot(s)
		}
	}
	t.pool.Give(old)
}

// Shrink makes the table smaller if most of it is empty.
func (t *Table) Shrink() {
	size := max(minSlots, len(t.slots)/4)
	if t.used*2 < size && size < len(t.slots) {
		t.resize(size)
	}
}

// Drop gives the table's memory back. The table is then empty and can be used again.
func (t *Table) Drop() {
	t.pool.Give(t.slots)
	*t = t.NewEmpty()
}

// Remove removes a block, which must be in the table, and closes the gap: later blocks may move to
// earlier slots, so a walk over the slots must look at the same slot again.
func (t *Table) Remove(hash uint32, r arena.Ref) {
	mask := uint32(len(t.slots) - 1)
	i := hash & mask
	for t.slots[i] != slotOf(hash, r) {
		i = (i + 1) & mask
	}
	for j := i; ; {
		t.slots[i] = 0
		for {
			j = (j + 1) & mask
			if t.slots[j] == 0 {
				t.used--
				return
			}
			// The slot at j may fill the gap at i unless its home lies cyclically in (i, j].
			if home := uint32(t.slots[j]) & mask; (j-home)&mask >= (j-i)&mask {
				break
			}
		}
		t.slots[i] = t.slots[j]
		i = j
	}
}
