package syncer

import "sync/atomic"

// reserveShare is the part of the memory that only partitions below their share may use: the rest of the node is told to make room
// while they do.
const reserveShare = 32

// budget is the account of the memory that all partitions of a counter use, in words. It changes when a chunk of an arena or
// a table is taken or given back; no operation on a key that is known touches it but to read it.
type budget struct {
	// most is what the keys may take, common what of it is there for every partition.
	most, common int64
	used         atomic.Int64
}

func newBudget(bytes int64) budget {
	most := bytes / 8
	return budget{most: most, common: most - most/reserveShare}
}

// tight reports whether another chunk might be too much.
func (b *budget) tight() bool { return b.used.Load()+chunkWords > b.common }

// allows reports whether a small chunk is left of what is there for all, or with the reserve.
func (b *budget) allows(reserve bool) bool {
	if reserve {
		return b.used.Load()+firstChunk <= b.most
	}
	return b.used.Load()+firstChunk <= b.common
}

// excess is by how many words the reserve is in use.
func (b *budget) excess() int { return int(b.used.Load() - b.common) }

// spent reports whether so much is in use that not even keys that are known may take more.
func (b *budget) spent() bool { return b.used.Load() > b.most+b.most/4 }
