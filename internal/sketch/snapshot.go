package sketch

import "slices"

// ranks is the number of registers of each rank.
type ranks [maxRank + 1]uint16

func ranksOf(dense *[registers]uint8) (with ranks) {
	for _, rank := range dense {
		with[rank]++
	}
	return with
}

// Snapshot is a union at a point in time. Its Count takes additional hashes into account without
// changing the snapshot, and without reading all registers, because the ranks of most of them are
// already counted.
type Snapshot struct {
	exact []uint64          // sorted; nil if there are registers
	dense *[registers]uint8 // nil while exact
	with  ranks             // of dense
}

// Snapshot returns a snapshot of the union.
func (u *Union) Snapshot() *Snapshot {
	if !u.isDense {
		return &Snapshot{exact: append(make([]uint64, 0, len(u.exact)), u.exact...)}
	}
	dense := u.dense
	return &Snapshot{dense: &dense, with: ranksOf(&dense)}
}

// snapshotBytes is the memory of a snapshot without hashes and registers, and of the references to
// it.
const snapshotBytes = 256

// Bytes returns the memory that a snapshot of the union would take.
func (u *Union) Bytes() int64 {
	if u.isDense {
		return snapshotBytes + registers
	}
	return snapshotBytes + int64(8*len(u.exact))
}

// Bytes returns the memory that the snapshot takes.
func (s *Snapshot) Bytes() int64 {
	if s.dense != nil {
		return snapshotBytes + registers
	}
	return snapshotBytes + int64(8*len(s.exact))
}

// Count returns the result of Count of the union after AddHashes(more).
func (s *Snapshot) Count(more []uint64) (n int64, relative float64) {
	if !slices.IsSorted(more) {
		more = slices.Clone(more)
		slices.Sort(more)
	}
	if s.dense != nil {
		return s.estimate(more), Error
	}
	n = int64(len(s.exact))
	left, last := s.exact, uint64(0)
	for i, h := range more {
		if i > 0 && h == last {
			continue
		}
		at, found := slices.BinarySearch(left, h)
		if left, last = left[at:], h; !found {
			n++
		}
	}
	if n <= MaxUnion {
		return n, 0
	}
	var u Union
	u.addExact(s.exact)
	u.AddHashes(more)
	return u.Count()
}

// estimate estimates the number of values with additional hashes, which are sorted: the hashes of
// one register are adjacent.
func (s *Snapshot) estimate(more []uint64) int64 {
	with := s.with
	for len(more) > 0 {
		at := more[0] >> (64 - indexBits)
		before := s.dense[at]
		rank := before
		for ; len(more) > 0 && more[0]>>(64-indexBits) == at; more = more[1:] {
			rank = max(rank, rankOf(more[0]))
		}
		with[before]--
		with[rank]++
	}
	return estimate(&with)
}
