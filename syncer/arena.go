package syncer

import (
	"math/bits"
	"slices"

	"twotier/leaparray"
)

// ref is the place of a block in an arena: chunk and word. 0 is none.
type ref uint32

const (
	chunkBits  = 12
	chunkWords = 1 << chunkBits
	maxChunks  = 1 << (32 - chunkBits)
	// exactClasses is the number of block sizes, in words, that have a free list of their own.
	exactClasses = 64
	firstChunk   = 128
)

// sizeClass is the free blocks of one size.
type sizeClass struct {
	words  int
	blocks []ref
}

// arena hands out blocks of words for the keys of one partition. It exists because a million small Go objects cost twice
// the memory, and the collector has to visit each; the chunks of an arena hold no pointers. Freed blocks are kept by
// size and cut up for smaller ones; what fragmentation leaves is won back by moving blocks out of chunks, see vacate.
//
// A block that is not shorter than a chunk is a chunk by itself, from its first word on, and goes with it: it is neither cut up
// nor kept. So every word that a block may begin at has a ref.
type arena struct {
	pool   *pool
	chunks []chunk
	vacant []int // places among the chunks that hold none
	last   int   // the chunk that new blocks are taken from, 0 if there is none
	next   int   // its first unused word
	free   [exactClasses]ref
	have   uint64      // bit i is set if free[i] is not empty
	large  []sizeClass // blocks of exactClasses words and more, by size
	// total is the number of words in chunks, unused of those that are free, vacated in those that are to be given back.
	total, unused, vacated int
}

// chunk is what blocks are cut from.
type chunk struct {
	words  []uint64
	used   int32 // words in blocks
	vacate bool  // it is given back when the last block has left it
}

// anew is an arena in place of this one.
func (a *arena) anew() arena { return arena{pool: a.pool} }

// drop gives the arena's memory back.
func (a *arena) drop() {
	for i := range a.chunks {
		a.pool.give(a.chunks[i].words)
	}
	*a = a.anew()
}

func (a *arena) words(r ref, n int) []uint64 {
	c := a.chunks[r>>chunkBits].words
	at := int(r & (chunkWords - 1))
	return c[at : at+n : at+n]
}

// tail returns the words from r to the end of its chunk.
func (a *arena) tail(r ref) []uint64 {
	return a.chunks[r>>chunkBits].words[r&(chunkWords-1):]
}

// alloc returns a zeroed block of n words.
func (a *arena) alloc(n int) ref {
	if n >= chunkWords {
		return a.whole(n)
	}
	r := a.reuse(n)
	if r == 0 {
		r = a.fresh(n)
	} else {
		clear(a.words(r, n))
	}
	a.unused -= n
	a.chunks[r>>chunkBits].used += int32(n)
	return r
}

// whole returns a block that is a chunk.
func (a *arena) whole(n int) ref {
	i := a.addChunk(a.pool.take(n))
	a.chunks[i].used = int32(n)
	a.unused -= n
	return ref(i << chunkBits)
}

// full reports whether nearly all chunks that a ref can tell apart are there: what is left is for keys that are known.
func (a *arena) full() bool { return len(a.chunks)-len(a.vacant) > maxChunks-maxChunks/16 }

// fits reports whether a block of n words can be had without another chunk.
func (a *arena) fits(n int) bool {
	for i := range a.large {
		if a.large[i].words >= n && len(a.large[i].blocks) > 0 {
			return true
		}
	}
	return n < exactClasses && a.have>>n != 0 || a.hasRest(n)
}

func (a *arena) reuse(n int) ref {
	var r ref
	var size int
	if fits := a.have >> n << n; n < exactClasses && fits != 0 {
		size = bits.TrailingZeros64(fits)
		r = a.free[size]
		a.free[size] = ref(a.words(r, 1)[0])
		if a.free[size] == 0 {
			a.have &^= 1 << size
		}
	} else if r, size = a.reuseLarge(n); r == 0 {
		return 0
	}
	if size > n {
		a.put(r+ref(n), size-n)
	}
	return r
}

// reuseLarge takes the smallest large block of at least n words.
func (a *arena) reuseLarge(n int) (r ref, size int) {
	for i := range a.large {
		c := &a.large[i]
		if last := len(c.blocks) - 1; c.words >= n && last >= 0 {
			r = c.blocks[last]
			c.blocks = c.blocks[:last]
			return r, c.words
		}
	}
	return 0, 0
}

// put makes a block available for reuse.
func (a *arena) put(r ref, n int) {
	if n >= exactClasses {
		i, found := slices.BinarySearchFunc(a.large, n, func(c sizeClass, n int) int { return c.words - n })
		if !found {
			a.large = slices.Insert(a.large, i, sizeClass{words: n})
		}
		a.large[i].blocks = append(a.large[i].blocks, r)
		return
	}
	a.words(r, 1)[0] = uint64(a.free[n])
	a.free[n] = r
	a.have |= 1 << n
}

// release takes a block back. Nobody may read it any more.
func (a *arena) release(r ref, n int) {
	i := int(r >> chunkBits)
	c := &a.chunks[i]
	a.unused += n
	c.used -= int32(n)
	switch {
	case c.used == 0 && (c.vacate || n >= chunkWords):
		a.giveChunk(i)
	case !c.vacate:
		a.put(r, n)
	}
}

// hasRest reports whether the end of the last chunk has room for a block of n words.
func (a *arena) hasRest(n int) bool {
	return a.last != 0 && a.next+n <= len(a.chunks[a.last].words)
}

// fresh takes a block from the end of the last chunk, or from a new one.
func (a *arena) fresh(n int) ref {
	if !a.hasRest(n) {
		a.keepRest()
		a.last, a.next = a.addChunk(a.newChunk(n)), 0
	}
	r := ref(a.last<<chunkBits | a.next)
	a.next += n
	return r
}

// addChunk makes room for blocks, and returns where. The first place stays empty, so that no block is at 0.
func (a *arena) addChunk(words []uint64) int {
	a.total += len(words)
	a.unused += len(words)
	if last := len(a.vacant) - 1; last >= 0 {
		i := a.vacant[last]
		a.vacant = a.vacant[:last]
		a.chunks[i] = chunk{words: words}
		return i
	}
	if len(a.chunks) == 0 {
		a.chunks = append(a.chunks, chunk{})
	}
	a.chunks = append(a.chunks, chunk{words: words})
	return len(a.chunks) - 1
}

// giveChunk gives a chunk back that no block is in, free ones included.
func (a *arena) giveChunk(i int) {
	c := a.chunks[i]
	a.total -= len(c.words)
	a.unused -= len(c.words)
	if c.vacate {
		a.vacated -= len(c.words)
	}
	a.pool.give(c.words)
	a.chunks[i] = chunk{}
	a.vacant = append(a.vacant, i)
}

// wideArena is the number of words from which on an arena's chunks are never tiny: it would run out of refs.
const wideArena = 1 << 20

// newChunk returns a chunk with room for n words: small as long as the arena is, and when memory is short.
func (a *arena) newChunk(n int) []uint64 {
	wanted := min(max(firstChunk, a.total/4), chunkWords)
	if a.pool.tight() {
		wanted = firstChunk
	}
	some := max(firstChunk, 1<<bits.Len(uint(n-1)))
	if a.total > wideArena {
		some = max(some, chunkWords/4)
	}
	return a.pool.takeAbout(some, max(some, 1<<(bits.Len(uint(wanted))-1)))
}

// keepRest puts the words left over at the end of the last chunk on the free lists.
func (a *arena) keepRest() {
	if a.last == 0 {
		return
	}
	for rest := len(a.chunks[a.last].words) - a.next; rest > 0; {
		n := min(rest, exactClasses-1)
		a.put(ref(a.last<<chunkBits|a.next), n)
		a.next += n
		rest -= n
	}
}

// counterAlloc is an arena as the allocator of leaparray. It remembers where the block is.
type counterAlloc struct {
	a   *arena
	ref ref
}

// Alloc implements leaparray.Allocator. The upper half of the first word holds the size, for when the block is released.
func (c *counterAlloc) Alloc(words int) leaparray.Counter {
	c.ref = c.a.alloc(words)
	b := c.a.words(c.ref, words)
	b[0] = uint64(words) << 32
	return leaparray.Counter(b)
}

// counter returns the counter at r, nil for 0.
func (a *arena) counter(r ref) leaparray.Counter {
	if r == 0 {
		return nil
	}
	b := a.tail(r)
	n := int(b[0] >> 32)
	return leaparray.Counter(b[:n:n])
}

func (a *arena) releaseCounter(r ref) {
	if r != 0 {
		a.release(r, int(a.tail(r)[0]>>32))
	}
}
