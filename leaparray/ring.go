package leaparray

// A ring is the dense form of a level: the index of its newest bucket, the slot that bucket is in,
// and a running total for every slot. The total of a slot covers everything counted in its own
// bucket and all older ones, so a bucket is the difference of two neighbours, and a range of
// buckets is the difference of its ends. Totals may wrap around; their differences stay right.
type ring []uint64

// ringHead is the number of words before the slots: the newest index, and its slot.
const ringHead = 2

func (r ring) head() int64 { return int64(r[0]) }

func (r ring) slots() int { return len(r) - ringHead }

// runningTotal is the running total of the slot that is back slots behind the newest one, 0 <= back
// < slots.
func (r ring) runningTotal(back int64) int64 {
	pos := int64(r[1]) - back
	if pos < 0 {
		pos += int64(len(r) - ringHead)
	}
	return int64(r[ringHead+pos])
}

// reach is how many buckets behind the newest one the ring holds.
func (r ring) reach() int64 { return int64(r.slots() - 2) }

// each calls fn for every bucket that is not zero, oldest first, until fn returns false.
func (r ring) each(fn func(idx, n int64) bool) {
	totals, newest := r[ringHead:], r[1]
	idx, before := r.head()-r.reach()-1, uint64(r.runningTotal(r.reach()+1))
	for _, part := range [2][]uint64{totals[newest+1:], totals[:newest+1]} {
		for _, total := range part {
			if total != before && !fn(idx, int64(total-before)) {
				return
			}
			idx, before = idx+1, total
		}
	}
}

// wouldLose reports whether a bucket that is not zero falls behind when idx becomes the newest one.
func (r ring) wouldLose(idx int64) bool {
	for i := r.head() - r.reach(); i <= min(idx-r.reach()-1, r.head()); i++ {
		if r.sum(i, i) != 0 {
			return true
		}
	}
	return false
}

// forget empties all buckets before idx.
func (r ring) forget(idx int64) {
	idx = min(idx, r.head()+1)
	rest := uint64(0)
	if back := r.head() - idx + 1; back <= r.reach()+1 {
		rest = uint64(r.runningTotal(back))
	} else {
		return
	}
	slots := int64(r.slots())
	for back := r.head() - idx + 2; back < slots; back++ {
		pos := int64(r[1]) - back
		if pos < 0 {
			pos += slots
		}
		r[ringHead+pos] = rest
	}
}

// sumAll adds up all buckets.
func (r ring) sumAll() int64 {
	before := r[1] + 1
	if before == uint64(r.slots()) {
		before = 0
	}
	return int64(r[ringHead+r[1]] - r[ringHead+before])
}

// sumFrom adds up the buckets from idx on, which the ring holds, and also returns the first one.
func (r ring) sumFrom(idx int64) (sum, first int64) {
	back := r.head() - idx
	before := r.runningTotal(back + 1)
	return r.runningTotal(0) - before, r.runningTotal(back) - before
}

// sum adds up the buckets from lo to hi. Buckets that are newer than the newest one or have fallen
// behind it count as zero.
func (r ring) sum(lo, hi int64) int64 {
	head := r.head()
	hi = min(hi, head)
	lo = max(lo, head-int64(r.slots()-2))
	if lo > hi {
		return 0
	}
	return r.runningTotal(head-hi) - r.runningTotal(head-lo+1)
}

// sumAndEnds is sum, and also returns the buckets lo and hi.
func (r ring) sumAndEnds(lo, hi int64) (sum, first, last int64) {
	head := r.head()
	oldest := head - int64(r.slots()-2)
	if hi > head || lo < oldest || lo > hi {
		return r.sum(lo, hi), r.sum(lo, lo), r.sum(hi, hi)
	}
	below, top := r.runningTotal(head-lo+1), r.runningTotal(head-hi)
	return top - below, r.runningTotal(head-lo) - below, top - r.runningTotal(head-hi+1)
}

// addNewest counts n in the newest bucket and returns its previous count.
func (r ring) addNewest(n int64) (before int64) {
	pos := int(r[1])
	below := pos - 1
	if below < 0 {
		below = r.slots() - 1
	}
	slot := &r[ringHead+pos]
	before = int64(*slot - r[ringHead+below])
	*slot += uint64(n)
	return before
}

// add counts n in the bucket that is back buckets behind the newest one: it adds to that running
// total and all newer ones.
func (r ring) add(back, n int64) {
	pos := int64(r[1])
	for ; back >= 0; back-- {
		r[ringHead+pos] += uint64(n)
		if pos--; pos < 0 {
			pos = int64(r.slots()) - 1
		}
	}
}

// advance makes idx the newest bucket: every slot on the way gets the newest running total.
func (r ring) advance(idx int64) {
	slots := int64(r.slots())
	total, pos := r.runningTotal(0), int64(r[1])
	steps := min(idx-r.head(), slots)
	for range steps {
		if pos++; pos == slots {
			pos = 0
		}
		r[ringHead+pos] = uint64(total)
	}
	r[0], r[1] = uint64(idx), uint64(pos)
}
