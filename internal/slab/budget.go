package slab

import "sync/atomic"

// reservePart is the part of a budget that is the reserve.
const reservePart = 32

// Budget is an account of words in use. It changes only when a block is taken or given back.
type Budget struct {
	// total is how many words there are, common how many of them are no reserve.
	total, common int64
	used          atomic.Int64
}

func newBudget(bytes int64) Budget {
	total := bytes / 8
	return Budget{total: total, common: total - total/reservePart}
}

// Common is how many words there are besides the reserve.
func (b *Budget) Common() int64 { return b.common }

// Used is how many words are in use.
func (b *Budget) Used() int64 { return b.used.Load() }

// Fits reports whether so many words more leave the reserve alone.
func (b *Budget) Fits(words int64) bool { return b.used.Load()+words <= b.common }

// FitsReserve reports whether there are so many words more, the reserve included.
func (b *Budget) FitsReserve(words int64) bool { return b.used.Load()+words <= b.total }

// ReserveUsed is how many words of the reserve are in use, negative by how many are left before it.
func (b *Budget) ReserveUsed() int { return int(b.used.Load() - b.common) }

// Exhausted reports whether a quarter more is in use than there is: not even who keeps what it has
// may take more.
func (b *Budget) Exhausted() bool { return b.used.Load() > b.total+b.total/4 }
