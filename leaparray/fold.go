package leaparray

import "math/bits"

// Allocator allocates the blocks of counters.
type Allocator interface {
	// Alloc returns a block of exactly this many words. It is zeroed, except for bits 32 to 63 of
	// the first word, which are the Allocator's.
	Alloc(words int) Counter
	// Release takes back a block that another one has replaced. It may be nil.
	Release(c Counter)
}

// Heap is the [Allocator] that uses the Go heap.
type Heap struct{}

// Alloc makes a slice.
func (Heap) Alloc(words int) Counter { return make(Counter, words) }

// Release does nothing.
func (Heap) Release(Counter) {}

// spare is the least room for more sparse words in a block that has grown.
const spare = 2

// Grow returns a copy of a counter, in a new block, that has room for adding n to a cell. The old
// block is unchanged.
func (l *Ladder) Grow(c Counter, a Allocator, s Stretch, n int64) Counter {
	if len(c) == 0 {
		c = Counter{0, 0}
	}
	mask := c.mask()
	kind, _ := l.kind(c, s)
	if kind < foreign && !c.dense(kind) && (!fits(n+l.Value(c, s)) || l.crowded(c, kind)) {
		mask |= 1 << kind
	}
	room := spare
	if kind == foreign || !fits(n+l.Value(c, s)) {
		room = foreignWords
	}
	return l.copyTo(c, a, mask, room)
}

// Compact returns a copy of a counter in the smallest block that holds it. Levels of which less
// than an eighth are live become sparse. The old block is unchanged. The result is nil if no
// cells are left.
func (l *Ladder) Compact(c Counter, a Allocator) Counter {
	if len(c) == 0 {
		return nil
	}
	mask := uint(0)
	for left := c.mask(); left != 0; left &= left - 1 {
		level, live := bits.TrailingZeros(left), int64(0)
		l.ring(c, level).each(func(_, n int64) bool {
			live++
			return live <= l.count[level]/8 && fits(n)
		})
		if live > l.count[level]/8 || live > 0 && !l.ring(c, level).narrow() {
			mask |= 1 << level
		}
	}
	to := l.copyTo(c, a, mask, 0)
	if to.mask() == 0 && to.sparseLen()+to.foreignLen() == 0 {
		return nil
	}
	return to
}

// copyTo copies all cells that are not zero, and a mark, into a new block whose dense levels are
// mask, with room for some more words: at least a quarter of the words that are not in rings.
func (l *Ladder) copyTo(c Counter, a Allocator, mask uint, more int) Counter {
	words := c.sparseLen() + c.foreignLen()*foreignWords
	for left := c.mask(); left != 0; left &= left - 1 {
		if mask&left&-left != 0 {
			continue
		}
		l.ring(c, bits.TrailingZeros(left)).each(func(_, n int64) bool {
			if words++; !fits(n) {
				words += foreignWords - 1
			}
			return true
		})
		words++ // a mark
	}
	for _, w := range l.sparse(c) {
		if kind := kindOf(w); kind < foreign && mask&(1<<kind) != 0 {
			words += foreignWords - 1 // if it is too old for the ring
		}
	}
	if more > 0 {
		more = max(more, words/4)
	}
	to := a.Alloc(int(l.start[mask][len(l.levels)]) + words + more)
	to[0] |= uint64(mask)
	for left := mask; left != 0; left &= left - 1 {
		level := bits.TrailingZeros(left)
		l.ring(to, level).reset(max(0, l.newestOf(c, level)))
	}
	for _, w := range l.sparse(c) {
		switch kind := kindOf(w); {
		case kind < foreign && mask&(1<<kind) != 0:
			l.place(to, l.stretch(w), countOf(w))
		default:
			l.insert(to, kind, posOf(w), countOf(w))
		}
	}
	for left := c.mask(); left != 0; left &= left - 1 {
		width := l.width[bits.TrailingZeros(left)]
		l.ring(c, bits.TrailingZeros(left)).each(func(i, n int64) bool {
			l.place(to, Stretch{i * width, width}, n)
			return true
		})
	}
	strange := l.foreign(c)
	for i := 0; i < len(strange); i += foreignWords {
		s := Stretch{int64(strange[i]), int64(strange[i+1])}
		l.place(to, s, int64(strange[i+2]))
	}
	if mark, ok := l.Marked(c); ok && l.newest(to) < l.index(0, mark.Start) {
		l.insert(to, 0, l.index(0, mark.Start), 0)
	}
	return to
}

// place copies a cell to a counter that has room for it and does not have it.
func (l *Ladder) place(to Counter, s Stretch, n int64) {
	kind, pos := l.kind(to, s)
	placed := n == 0
	switch {
	case placed || kind == foreign:
	case kind < foreign && to.dense(kind):
		_, placed = l.addDense(to, kind, pos, n)
	default:
		placed = fits(n) && to.sparseLen() < l.most && l.insert(to, kind, pos, n)
	}
	if !placed {
		l.addForeign(to, s, n)
	}
}

// Put counts n in a cell of one of the two counters of a view, and replaces that by one in a new
// block if the old one has no room. If the ring of a busy level would push out a bucket, or there
// are too many sparse cells, both counters fold. Put returns how many events were dropped because
// they had left every window, and whether the counters folded.
//
// If the cells in the way lie ahead of the present, by a clock that was set back, they don't fold.
// The new one then becomes a foreign cell.
func (v *View) Put(c *Counter, a Allocator, s Stretch, n int64) (dropped int64, folded bool) {
	_, ok := v.Ladder.Add(*c, s, n)
	for tries := 0; !ok; tries++ {
		if v.stuck(*c, s, tries) {
			old := *c
			*c = v.Ladder.copyTo(old, a, old.mask(), foreignWords)
			a.Release(old)
			v.Ladder.addForeign(*c, s, n)
			break
		}
		gone, too := v.makeRoom(c, a, s, n, tries)
		dropped, folded = dropped+gone, folded || too
		_, ok = v.Ladder.Add(*c, s, n)
	}
	return dropped, folded
}

// Mark records that events lie ahead of the present, in the bucket of the finest level before this
// one. It does and returns what Put does, except that it marks nothing if the cells in the way don't
// fold.
func (v *View) Mark(c *Counter, a Allocator, s Stretch) (dropped int64, folded bool) {
	for tries := 0; !v.Ladder.mark(*c, s) && !v.stuck(*c, s, tries); tries++ {
		gone, too := v.makeRoom(c, a, s, 0, tries)
		dropped, folded = dropped+gone, folded || too
	}
	return dropped, folded
}

// stuck reports whether there is no place for a cell after makeRoom has folded all it can.
func (v *View) stuck(c Counter, s Stretch, tries int) bool {
	return tries > 1 && v.Ladder.pushesOut(c, s)
}

// makeRoom makes room for a cell: in a new block, or by folding, the second time of all that is old
// enough. It returns how many events were dropped, and whether the counters folded.
func (v *View) makeRoom(c *Counter, a Allocator, s Stretch, n int64,
	tries int) (dropped int64, folded bool) {
	switch {
	case !v.Ladder.pushesOut(*c, s):
		old := *c
		*c = v.Ladder.Grow(old, a, s, n)
		a.Release(old)
		return 0, false
	case tries == 0:
		return v.Fold(a, v.ExactFrom()), true
	default:
		return v.Fold(a, maxMoment), true
	}
}

// pushesOut reports whether there is no place for a cell unless others fold: in its ring, or among
// the sparse cells.
func (l *Ladder) pushesOut(c Counter, s Stretch) bool {
	if len(c) == 0 {
		return false
	}
	kind, pos := l.kind(c, s)
	if kind < foreign && c.dense(kind) {
		return l.ring(c, kind).lost(pos)
	}
	return c.sparseLen() >= l.most && kind != foreign
}

// Fold moves every bucket that is too old for its width, and every cell of a millisecond, into the
// bucket of its age, if that ends by exactFrom: with the result of [View.ExactFrom], what is exact
// from there on stays so; with math.MaxInt64, every cell that is old enough folds. Fold drops the
// cells that have left every window, and returns the number of their events; the sum of all others
// stays the same. It replaces the counters of the view, by new blocks where the old ones have no
// room.
//
// Both counters fold at the same time: if one takes back what the other has, and only the first
// folded, a window could seem to have fewer events than it has.
func (v *View) Fold(a Allocator, exactFrom int64) (dropped int64) {
	for _, c := range []*Counter{&v.A, &v.B} {
		dropped += v.fold(c, a, exactFrom)
	}
	return dropped
}

func (v *View) fold(c *Counter, a Allocator, exactFrom int64) (dropped int64) {
	if len(*c) == 0 {
		return 0
	}
	var buffer [slack]Cell
	f := folding{Ladder: v.Ladder, now: v.Now, exactFrom: exactFrom, moved: buffer[:0]}
	f.takeRings(*c)
	f.takeSparse(*c)
	f.takeForeign(*c)
	for _, m := range f.moved {
		more, _ := v.Put(c, a, m.Stretch, m.N)
		f.dropped += more
	}
	return f.dropped
}

// folding takes the cells out of a counter that fold, and adds up those that fold into the same
// bucket.
type folding struct {
	*Ladder
	now, exactFrom int64
	moved          []Cell
	dropped        int64
}

// take takes a cell, unless it does not fold.
func (f *folding) take(s Stretch, n int64) bool {
	into, due := f.due(s, f.now)
	switch {
	case !due:
		return false
	case into.Width == 0:
		f.dropped += n
		return true
	case into.End() > f.exactFrom:
		return false
	}
	f.put(into, n)
	return true
}

func (f *folding) put(into Stretch, n int64) {
	if last := len(f.moved) - 1; last >= 0 && f.moved[last].Stretch == into {
		f.moved[last].N += n
		return
	}
	f.moved = append(f.moved, Cell{into, n})
}

func (f *folding) takeRings(c Counter) {
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		r, width, oldest := f.ring(c, level), f.width[level], f.oldest(level, f.now)
		if oldest <= r.head()-r.reach() {
			continue
		}
		r.eachBefore(oldest, func(i, n int64) {
			if s := (Stretch{i * width, width}); !f.take(s, n) {
				f.put(s, n) // back where it was
			}
		})
		r.forget(oldest)
	}
}

// takeSparse takes the sparse cells that fold. They are in the order of their ends, and one that
// folds ends before the bucket that it folds into.
func (f *folding) takeSparse(c Counter) {
	words, kept, at := f.sparse(c), 0, 0
	for ; at < len(words); at++ {
		w := words[at]
		s, n := f.stretch(w), countOf(w)
		if s.End() > f.exactFrom {
			break
		}
		if f.take(s, n) {
			c[1] -= uint64(n)
			continue
		}
		words[kept] = w
		kept++
	}
	if gone := at - kept; gone > 0 {
		end := f.end(c)
		first := int(f.start[c.mask()][len(f.levels)])
		copy(c[first+kept:end], c[first+at:end])
		c.lengthen(-gone, 0)
	}
}

func (f *folding) takeForeign(c Counter) {
	for i := 0; i < len(f.foreign(c)); {
		words := f.foreign(c)[i:]
		s, n := Stretch{int64(words[0]), int64(words[1])}, int64(words[2])
		if !f.take(s, n) {
			i += foreignWords
			continue
		}
		copy(words, words[foreignWords:])
		c.lengthen(0, -1)
	}
}

// Holder returns the cell of a counter that holds n events which were counted in a cell before the
// counter folded: that cell, or the bucket that it has folded into by now.
func (l *Ladder) Holder(c Counter, s Stretch, n, now int64) Stretch {
	if held := l.Value(c, s); n > 0 && held >= n || n < 0 && held <= n {
		return s
	}
	if into, due := l.due(s, now); due && into.Width > 0 {
		return into
	}
	return s
}

// due returns the bucket of a cell's age, and whether it is a wider one. It is zero for a cell that
// has left every window. Cells ahead of the present stay where they are.
func (l *Ladder) due(s Stretch, now int64) (into Stretch, due bool) {
	if s.Width > 1 || s.End() <= l.Since(now) {
		return l.Folds(s, now)
	}
	into, _ = l.Bucket(s.Start, now)
	return into, s.Start <= now
}
