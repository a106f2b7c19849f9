package arena

import (
	"cmp"
	"math/bits"
	"slices"
)

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
