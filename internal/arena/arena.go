package arena

import (
	"cmp"
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

// wideArena is the size, in words, from which on new chunks are never tiny. Otherwise the arena
// would run out of refs.
const wideArena = 1 << 20

// addChunk adds a chunk and returns its index. Index 0 stays empty, so that no block has the Ref 0.
func (a *Arena) addChunk(words []uint64) int {
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

// giveChunk gives back a chunk that has no block in use and none on a free list.
func (a *Arena) giveChunk(i int) {
	c := a.chunks[i]
	a.total -= len(c.words)
	a.unused -= len(c.words)
	if c.evacuate {
		a.evacuating -= len(c.words)
	}
	a.pool.Give(c.words)
	a.chunks[i] = chunk{}
	a.vacant = append(a.vacant, i)
}

// newChunk returns a chunk with room for n words. It is small while the arena is small, and when
// memory is short.
func (a *Arena) newChunk(n int) []uint64 {
	wanted := min(max(MinChunkWords, a.total/4), ChunkWords)
	if !a.pool.Fits(ChunkWords) {
		wanted = MinChunkWords
	}
	least := max(MinChunkWords, 1<<bits.Len(uint(n-1)))
	if a.total > wideArena {
		least = max(least, ChunkWords/4)
	}
	return a.pool.TakeAbout(least, max(least, 1<<(bits.Len(uint(wanted))-1)))
}

// freeRest puts the words left over at the end of the last chunk on the free lists.
func (a *Arena) freeRest() {
	if a.last == 0 {
		return
	}
	for rest := len(a.chunks[a.last].words) - a.next; rest > 0; {
		n := min(rest, exactClasses-1)
		a.addFree(Ref(a.last<<chunkBits|a.next), n)
		a.next += n
		rest -= n
	}
}

// hasRest reports whether the end of the last chunk has room for a block of n words.
func (a *Arena) hasRest(n int) bool {
	return a.last != 0 && a.next+n <= len(a.chunks[a.last].words)
}

// allocFresh takes a block from the end of the last chunk, or from a new one.
func (a *Arena) allocFresh(n int) Ref {
	if !a.hasRest(n) {
		a.freeRest()
		a.last, a.next = a.addChunk(a.newChunk(n)), 0
	}
	r := Ref(a.last<<chunkBits | a.next)
	a.next += n
	return r
}

// MustMove reports whether a block is in a chunk that is being evacuated, so that the caller must
// move it. It is false for 0.
func (a *Arena) MustMove(r Ref) bool { return r != 0 && a.chunks[r>>chunkBits].evacuate }

// HasOwnChunk reports whether a block is larger than ChunkWords. Such a block has a chunk to
// itself, which can't be evacuated but is given back when the block is released.
func (a *Arena) HasOwnChunk(r Ref) bool {
	return r != 0 && len(a.chunks[r>>chunkBits].words) > ChunkWords
}

// EvacuatingWords returns the number of words in chunks that are being evacuated.
func (a *Arena) EvacuatingWords() int { return a.evacuating }

// Evacuate marks chunks, starting with the ones that have the fewest words in use, until at least
// words words are in marked chunks. No new block goes into a marked chunk, and a marked chunk is
// given back when its last block is released. The caller moves the blocks: see [Arena.MustMove].
func (a *Arena) Evacuate(words int) {
	var chosen []int
	for i := range a.chunks {
		c := &a.chunks[i]
		if size := len(c.words); size > 0 && size <= ChunkWords && !c.evacuate && i != a.last {
			chosen = append(chosen, i)
		}
	}
	slices.SortFunc(chosen, func(i, j int) int {
		return cmp.Compare(a.chunks[i].used, a.chunks[j].used)
	})
	for n, i := range chosen {
		if a.evacuating >= words {
			chosen = chosen[:n]
			break
		}
		a.chunks[i].evacuate = true
		a.evacuating += len(a.chunks[i].words)
	}
	a.dropFreeBlocks()
	for _, i := range chosen {
		if c := &a.chunks[i]; c.used == 0 {
			a.giveChunk(i)
		}
	}
}

// dropFreeBlocks removes the free blocks of chunks that are being evacuated from the free lists.
func (a *Arena) dropFreeBlocks() {
	for n, r := range a.free {
		a.free[n] = 0
		a.have &^= 1 << n
		for r != 0 {
			next := Ref(a.Words(r, 1)[0])
			if !a.MustMove(r) {
				a.addFree(r, n)
			}
			r = next
		}
	}
	for i := range a.large {
		a.large[i].blocks = slices.DeleteFunc(a.large[i].blocks, a.MustMove)
	}
}
