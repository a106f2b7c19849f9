package slab

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

const (
	slabBits  = 18 // 2 MiB, a huge page of most processors
	slabWords = 1 << slabBits
	// regionSlabs is how many slabs are mapped at a time. What is not used of them takes no memory.
	regionSlabs = 16
)

// Pool hands out blocks of words. Blocks are powers of two, cut from slabs of one huge page each.
// Blocks that were given back are kept by size, and cut up for smaller ones.
type Pool struct {
	Budget
	mu      sync.Mutex
	mapped  *regions
	slabs   map[uintptr]*slab // by address
	current *slab
	empty   []*slab
	free    [slabBits + 1][][]uint64 // blocks that were in use, of 1<<i words
	idle    int                      // words in them
}

type slab struct {
	words []uint64
	next  int // where the words begin that are in no block
	used  int // words in use
}

// regions are what to unmap. They are apart from the pool so that its cleanup doesn't keep it
// alive.
type regions struct{ all [][]byte }

// OffHeap is whether blocks lie outside of the Go heap, where its collector does not see them.
const OffHeap = hugePages

// New returns a pool whose budget is so many bytes.
func New(maxBytes int64) *Pool {
	p := &Pool{mapped: new(regions), slabs: map[uintptr]*slab{}, Budget: newBudget(maxBytes)}
	runtime.AddCleanup(p, unmapAll, p.mapped)
	return p
}

func unmapAll(r *regions) {
	for _, region := range r.all {
		unmapRegion(region)
	}
}

// Take returns a block of n words, all zero. One that is no power of two, or larger than a slab, is
// of the Go heap.
func (p *Pool) Take(n int) []uint64 {
	if !hugePages || n > slabWords || n&(n-1) != 0 {
		return p.heapBlock(n)
	}
	return p.takeFrom(n, n)
}

// TakeAbout returns n words, all zero, or fewer where those would be idle otherwise, but at least
// so many. All three are powers of two, n no larger than a slab.
func (p *Pool) TakeAbout(least, n int) []uint64 {
	if !hugePages {
		return p.heapBlock(n)
	}
	return p.takeFrom(least, n)
}

func (p *Pool) heapBlock(n int) []uint64 {
	p.used.Add(int64(n))
	return make([]uint64, n)
}

func (p *Pool) takeFrom(least, n int) []uint64 {
	p.mu.Lock()
	b, s := p.reuse(least, n)
	if b == nil {
		if s = p.room(n); s == nil {
			p.mu.Unlock()
			return p.heapBlock(n)
		}
		b = s.words[s.next : s.next+n : s.next+n]
		s.next += n
	}
	s.used += len(b)
	p.mu.Unlock()
	p.used.Add(int64(len(b)))
	return b
}

// reuse returns a free block of n words, else the largest smaller one down to least, else a part of
// a larger one.
func (p *Pool) reuse(least, n int) ([]uint64, *slab) {
	want := bits.TrailingZeros(uint(n))
	from := want
	for from > bits.TrailingZeros(uint(least)) && len(p.free[from]) == 0 {
		from--
	}
	if len(p.free[from]) == 0 {
		for from = want; len(p.free[from]) == 0; from++ {
			if from == slabBits {
				return nil, nil
			}
		}
	}
	last := len(p.free[from]) - 1
	b := p.free[from][last]
	p.free[from] = p.free[from][:last]
	for ; from > want; from-- {
		half := len(b) / 2
		p.free[from-1] = append(p.free[from-1], b[half:])
		b = b[:half:half]
	}
	p.idle -= len(b)
	clear(b)
	return b, p.slabOf(b)
}

func (p *Pool) slabOf(b []uint64) *slab {
	return p.slabs[uintptr(unsafe.Pointer(unsafe.SliceData(b)))&^(8*slabWords-1)]
}

// room returns a slab with room for n words, nil if the system has none.
func (p *Pool) room(n int) *slab {
	if s := p.current; s != nil && s.next+n <= slabWords {
		return s
	}
	if len(p.empty) == 0 && !p.mapMore() {
		return nil
	}
	if s := p.current; s != nil { // what is left of it is idle
		for s.next < slabWords {
			rest := 1 << (bits.Len(uint(slabWords-s.next)) - 1)
			p.put(s.words[s.next : s.next+rest : s.next+rest])
			s.next += rest
		}
	}
	last := len(p.empty) - 1
	p.current, p.empty = p.empty[last], p.empty[:last]
	return p.current
}

// mapMore maps a region and cuts it into slabs.
func (p *Pool) mapMore() bool {
	// Only a small counter's memory is all in the first slab. Small pages are enough for it.
	region, at := mapRegion(8*slabWords, regionSlabs, len(p.slabs) == 0)
	if region == nil {
		return false
	}
	p.mapped.all = append(p.mapped.all, region)
	for i := regionSlabs - 1; i >= 0; i-- {
		b := region[at+i*8*slabWords:]
		s := &slab{words: unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), slabWords)}
		p.slabs[uintptr(unsafe.Pointer(unsafe.SliceData(b)))] = s
		p.empty = append(p.empty, s)
	}
	return true
}

func (p *Pool) put(b []uint64) {
	class := bits.TrailingZeros(uint(len(b)))
	p.free[class] = append(p.free[class], b)
	p.idle += len(b)
}

// Give takes a block back. Nobody may read it any more.
func (p *Pool) Give(b []uint64) {
	p.used.Add(-int64(len(b)))
	if !hugePages || len(b) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slabOf(b)
	if s == nil { // it is of the Go heap
		return
	}
	p.put(b)
	s.used -= len(b)
	if s.used > 0 || s == p.current {
		return
	}
	for i := range p.free {
		p.free[i] = slices.DeleteFunc(p.free[i], func(b []uint64) bool { return p.slabOf(b) == s })
	}
	p.idle -= slabWords
	s.next = 0
	forget(s.words)
	p.empty = append(p.empty, s)
}

// IdleBytes is the size of the blocks that are kept for reuse.
func (p *Pool) IdleBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 8 * int64(p.idle)
}
