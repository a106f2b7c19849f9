package arena

import (
	"cmp"
	"slices"
)

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
