package syncer

// table finds the blocks of a partition's keys by hash: open addressing with linear probing (Knuth, vol. 3, 6.4, algorithms
// L and R). A slot is 32 bits of the hash and the place of the block, so a probe touches a block only if the hashes agree.
type table struct {
	pool  *pool
	slots []uint64
	used  int
}

const minSlots = 16

func slotOf(hash uint32, r ref) uint64 { return uint64(r)<<32 | uint64(hash) }

// find calls match for the blocks stored under a hash until it returns true, and returns that block, or 0.
func (t *table) find(hash uint32, match func(ref) bool) ref {
	if t.used == 0 {
		return 0
	}
	mask := uint32(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return 0
		}
		if uint32(s) == hash && match(ref(s>>32)) {
			return ref(s >> 32)
		}
	}
}

func (t *table) insert(hash uint32, r ref) {
	if (t.used+1)*5 > len(t.slots)*4 {
		t.resize(max(minSlots, len(t.slots)*2))
	}
	t.place(slotOf(hash, r))
	t.used++
}

func (t *table) place(s uint64) {
	mask := uint32(len(t.slots) - 1)
	i := uint32(s) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *table) resize(size int) {
	old := t.slots
	t.slots = t.pool.take(size)
	for _, s := range old {
		if s != 0 {
			t.place(s)
		}
	}
	t.pool.give(old)
}

// shrink makes a table smaller of which most is empty.
func (t *table) shrink() {
	if size := max(minSlots, len(t.slots)/4); t.used*2 < size && size < len(t.slots) {
		t.resize(size)
	}
}

// drop empties the table and gives its memory back.
func (t *table) drop() {
	t.pool.give(t.slots)
	*t = table{pool: t.pool}
}

// remove takes a block out and closes the gap behind it.
func (t *table) remove(hash uint32, r ref) {
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
