package slab

import "sync/atomic"

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

// Common returns the number of words without the reserve.
func (b *Budget) Common() int64 { return b.common }

// Used returns the number of words in use.
func (b *Budget) Used() int64 { return b.used.Load() }

// Fits reports whether words more fit without touching the reserve.
func (b *Budget) Fits(words int64) bool { return b.used.Load()+words <= b.common }

// FitsReserve reports whether words more fit, including the reserve.
func (b *Budget) FitsReserve(words int64) bool { return b.used.Load()+words <= b.total }

// ReserveUsed returns how many words of the reserve are in use. It is negative, by the number of
// words that are left before it, if the reserve is untouched.
func (b *Budget) ReserveUsed() int { return int(b.used.Load() - b.common) }

// Exhausted reports whether a quarter more than the budget is in use. Then no caller may take more,
// not even one that only adds to a key it has.
func (b *Budget) Exhausted() bool { return b.used.Load() > b.total+b.total/4 }
