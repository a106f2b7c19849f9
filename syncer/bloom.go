package syncer

import "math/bits"

// bloom is a set of hashes that may also claim to contain others: a Bloom filter of which each element sets bits in a single word
// (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007). When a filter is as full as is good for it,
// another, larger one is begun (Almeida et al.: Scalable Bloom Filters, 2007).
type bloom struct {
	filters [][]uint64
	n       int // elements of the last filter
	words   int // of all filters
}

const (
	bloomBits = 4 // set by an element
	// bloomElements is how many elements there are for a word at the most: one in 400 others then seems to be contained.
	bloomElements = 3
	firstBloom    = 64 // words
	bloomGrowth   = 4
)

// add puts a hash in. If there are most words already, those that there are become fuller.
func (b *bloom) add(hash uint32, most int) {
	if last := len(b.filters) - 1; last < 0 || b.n >= bloomElements*len(b.filters[last]) {
		size := firstBloom
		if last >= 0 {
			size = bloomGrowth * len(b.filters[last])
		}
		if last < 0 || b.words+size <= most {
			b.filters = append(b.filters, make([]uint64, size))
			b.words += size
			b.n = 0
		}
	}
	b.n++
	f := b.filters[len(b.filters)-1]
	at, mask := bloomPlace(hash, len(f))
	f[at] |= mask
}

// has reports whether the hash may have been put in.
func (b *bloom) has(hash uint32) bool {
	for _, f := range b.filters {
		if at, mask := bloomPlace(hash, len(f)); f[at]&mask == mask {
			return true
		}
	}
	return false
}

// bloomPlace is the word of a hash and its bits.
func bloomPlace(hash uint32, words int) (at uint64, mask uint64) {
	h := uint64(hash) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	at, h = bits.Mul64(h, uint64(words))
	for range bloomBits {
		mask |= 1 << (h >> 58)
		h <<= 6
	}
	return at, mask
}
