package arena

import (
	"math/bits"
	"slices"

	"twotier.dev/twotier/internal/slab"
)

// Ref identifies a block in an arena by its chunk and its first word. 0 means no block.
type Ref uint32

const (
	chunkBits = 12
	maxChunks = 1 << (32 - chunkBits)
	// exactClasses is the number of block sizes, in words, that have a separate free list.
	exactClasses = 64
)

// The sizes of a chunk, in words.
const (
	// ChunkWords is the size of the chunks of all but small arenas, MinChunkWords the smallest
	// size.
	ChunkWords    = 1 << chunkBits
	MinChunkWords = 128
)

// sizeClass holds the free blocks of one size.
type sizeClass struct {
	words  int
	blocks []Ref
}

func (c sizeClass) compare(words int) int { return c.words - words }

// Arena hands out blocks of words from chunks that it takes from a pool. Make one with [New].
//
// A block of ChunkWords or more has a chunk to itself, which is given back when the block is
// released; it is never split or kept. So a Ref can address every word at which a block may begin.
type Arena struct {
	pool   *slab.Pool
	chunks []chunk
	vacant []int // indexes in chunks that are free
	last   int   // the chunk that new blocks are cut from, 0 if there is none
	next   int   // the first unused word of last
	free   [exactClasses]Ref
	have   uint64      // bit i is set if free[i] is not empty
	large  []sizeClass // blocks of exactClasses words and more, by size
	// total is the number of words in all chunks, unused the number of words outside of blocks, and
	// evacuating the number of words in chunks that will be given back.
	total, unused, evacuating int
}

// chunk is memory that blocks are cut from.
type chunk struct {
	words    []uint64
	used     int32 // words in blocks
	evacuate bool  // give the chunk back when its last block is released
}

// New returns an empty arena that takes its chunks from pool.
func New(pool *slab.Pool) Arena { return Arena{pool: pool} }

// NewEmpty returns another, empty arena with the same pool.
func (a *Arena) NewEmpty() Arena { return Arena{pool: a.pool} }

// Drop gives all memory back to the pool. The arena is then empty and can be used again.
func (a *Arena) Drop() {
	for i := range a.chunks {
		a.pool.Give(a.chunks[i].words)
	}
	*a = a.NewEmpty()
}

// TotalWords returns the number of words that the arena has taken from the pool.
func (a *Arena) TotalWords() int { return a.total }

// UnusedWords returns how many of those words are outside of blocks.
func (a *Arena) UnusedWords() int { return a.unused }

// Sparse reports whether so little of the arena is in use that the caller should move its blocks to
// another arena.
func (a *Arena) Sparse() bool { return a.unused > max(a.total/2, ChunkWords/2) }

// Words returns the n words that begin at r. They are valid until the block is released.
func (a *Arena) Words(r Ref, n int) []uint64 {
	c := a.chunks[r>>chunkBits].words
	at := int(r & (ChunkWords - 1))
	return c[at : at+n : at+n]
}

// Tail returns the words from r to the end of its chunk.
func (a *Arena) Tail(r Ref) []uint64 {
	return a.chunks[r>>chunkBits].words[r&(ChunkWords-1):]
}

// Alloc returns a zeroed block of n words, at least 1.
func (a *Arena) Alloc(n int) Ref {
	if n >= ChunkWords {
		return a.allocOwnChunk(n)
	}
	r := a.reuse(n)
	if r == 0 {
		r = a.allocFresh(n)
	} else {
		clear(a.Words(r, n))
	}
	a.unused -= n
	a.chunks[r>>chunkBits].used += int32(n)
	return r
}

// allocOwnChunk returns a block that has a chunk to itself.
func (a *Arena) allocOwnChunk(n int) Ref {
	i := a.addChunk(a.pool.Take(n))
	a.chunks[i].used = int32(n)
	a.unused -= n
	return Ref(i << chunkBits)
}

// Full reports whether the arena has nearly as many chunks as a Ref can address. The rest is for
// blocks that replace others.
func (a *Arena) Full() bool { return len(a.chunks)-len(a.vacant) > maxChunks-maxChunks/16 }

// Fits reports whether a block of n words can be allocated without another chunk.
func (a *Arena) Fits(n int) bool {
	for i := range a.large {
		if a.large[i].words >= n && len(a.large[i].blocks) > 0 {
			return true
		}
	}
	return n < exactClasses && a.have>>n != 0 || a.hasRest(n)
}

func (a *Arena) reuse(n int) Ref {
	var r Ref
	var size int
	if fits := a.have >> n << n; n < exactClasses && fits != 0 {
		size = bits.TrailingZeros64(fits)
		r = a.free[size]
		a.free[size] = Ref(a.Words(r, 1)[0])
		if a.free[size] == 0 {
			a.have &^= 1 << size
		}
	} else if r, size = a.reuseLarge(n); r == 0 {
		return 0
	}
	if size > n {
		a.addFree(r+Ref(n), size-n)
	}
	return r
}

// reuseLarge takes the smallest large block of at least n words.
func (a *Arena) reuseLarge(n int) (r Ref, size int) {
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

// addFree makes a block available for reuse.
func (a *Arena) addFree(r Ref, n int) {
	if n >= exactClasses {
		i, found := slices.BinarySearchFunc(a.large, n, sizeClass.compare)
		if !found {
			a.large = slices.Insert(a.large, i, sizeClass{words: n})
		}
		a.large[i].blocks = append(a.large[i].blocks, r)
		return
	}
	a.Words(r, 1)[0] = uint64(a.free[n])
	a.free[n] = r
	a.have |= 1 << n
}

// Release frees a block of n words. The caller must not use it any more.
func (a *Arena) Release(r Ref, n int) {
	i := int(r >> chunkBits)
	c := &a.chunks[i]
	a.unused += n
	c.used -= int32(n)
	switch {
	case c.used == 0 && (c.evacuate || n >= ChunkWords):
		a.giveChunk(i)
	case !c.evacuate:
		a.addFree(r, n)
	}
}
