package slab

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	slabBits  = 18 // 2 MiB, a huge page of most processors
	slabWords = 1 << slabBits
	// regionSlabs is how many slabs are mapped at a time. Unused slabs take no memory.
	regionSlabs = 16
)

// Pool hands out blocks of words. Blocks whose size is a power of two are cut from slabs of one
// huge page each. Released blocks are kept by size and cut up for smaller ones.
type Pool struct {
	Budget
	mu      sync.Mutex
	mapped  *regions
	slabs   map[uintptr]*slab // by address
	current *slab
	empty   []*slab
	free    [slabBits + 1][][]uint64 // released blocks of 1<<i words
	idle    int                      // words in free
}

type slab struct {
	words []uint64
	next  int // where the words begin that are in no block
	used  int // words in use
}

// regions holds the regions to unmap. It is separate from the pool so that the pool's cleanup
// doesn't keep the pool alive.
type regions struct{ all [][]byte }

// OffHeap reports whether blocks lie outside the Go heap, invisible to the garbage collector.
const OffHeap = hugePages

// New returns a pool with a budget of maxBytes.
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

// Take returns a zeroed block of n words. If n is not a power of two, or larger than a slab, the
// block comes from the Go heap.
func (p *Pool) Take(n int) []uint64 {
	if !hugePages || n > slabWords || n&(n-1) != 0 {
		return p.heapBlock(n)
	}
	return p.takeFrom(n, n)
}

// TakeAbout returns a zeroed block of n words, or a smaller free block of at least least words if
// there is no free one of n. least, n and the size of the block are powers of two, and n is at most
// a slab.
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
		if s = p.slabWithRoom(n); s == nil {
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

// slabWithRoom returns a slab with room for n words, or nil if the system has no more memory.
func (p *Pool) slabWithRoom(n int) *slab {
	if s := p.current; s != nil && s.next+n <= slabWords {
		return s
	}
	if len(p.empty) == 0 && !p.mapSlabs() {
		return nil
	}
	if s := p.current; s != nil { // keep the rest of it as free blocks
		for s.next < slabWords {
			rest := 1 << (bits.Len(uint(slabWords-s.next)) - 1)
			p.addFree(s.words[s.next : s.next+rest : s.next+rest])
			s.next += rest
		}
	}
	last := len(p.empty) - 1
	p.current, p.empty = p.empty[last], p.empty[:last]
	return p.current
}

// mapSlabs maps a region and cuts it into slabs.
func (p *Pool) mapSlabs() bool {
	// A counter whose memory fits into the first slab is small. Small pages are enough for it.
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

func (p *Pool) addFree(b []uint64) {
	class := bits.TrailingZeros(uint(len(b)))
	p.free[class] = append(p.free[class], b)
	p.idle += len(b)
}

// Give releases a block. The caller must not use it any more.
func (p *Pool) Give(b []uint64) {
	p.used.Add(-int64(len(b)))
	if !hugePages || len(b) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slabOf(b)
	if s == nil { // the block is on the Go heap
		return
	}
	p.addFree(b)
	s.used -= len(b)
	if s.used > 0 || s == p.current {
		return
	}
	for i := range p.free {
		p.free[i] = slices.DeleteFunc(p.free[i], func(b []uint64) bool { return p.slabOf(b) == s })
	}
	p.idle -= slabWords
	s.next = 0
	returnMemory(s.words)
	p.empty = append(p.empty, s)
}

// IdleBytes returns the total size of the blocks that are kept for reuse.
func (p *Pool) IdleBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 8 * int64(p.idle)
}

// reservePart is the part of a budget that is the reserve.
const reservePart = 32

// Budget counts the words in use. It changes only when a block is taken or given back.
type Budget struct {
	// total is the size of the budget in words, and common the part of it that is not the reserve.
	total, common int64
	used          atomic.Int64
}

func newBudget(bytes int64) Budget {
	total := bytes / 8
	return Budget{total: total, common: total - total/reservePart}
}

// CommonWords returns the number of words without the reserve.
func (b *Budget) CommonWords() int64 { return b.common }

// UsedWords returns the number of words in use.
func (b *Budget) UsedWords() int64 { return b.used.Load() }

// Fits reports whether words more fit without touching the reserve.
func (b *Budget) Fits(words int64) bool { return b.used.Load()+words <= b.common }

// FitsReserve reports whether words more fit, including the reserve.
func (b *Budget) FitsReserve(words int64) bool { return b.used.Load()+words <= b.total }

// ReserveWordsUsed returns how many words of the reserve are in use. If the reserve is untouched,
// the result is minus the number of words left before it.
func (b *Budget) ReserveWordsUsed() int { return int(b.used.Load() - b.common) }

// Exhausted reports whether a quarter more than the budget is in use. Then no caller may take more,
// not even to add to a key it already has.
func (b *Budget) Exhausted() bool { return b.used.Load() > b.total+b.total/4 }
