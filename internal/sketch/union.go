package sketch

import "slices"

// Union is the union of several sets. The zero value is empty. It can be used again after Reset.
type Union struct {
	exact, spare []uint64
	dense        [registers]uint8
	isDense      bool
}

// Reset empties the union.
func (u *Union) Reset() {
	u.exact = u.exact[:0]
	if u.isDense {
		u.dense, u.isDense = [registers]uint8{}, false
	}
}

// Add adds the values of a set.
func (u *Union) Add(s *Set) {
	switch {
	case s.dense != nil:
		u.densify()
		mergeRanks(&u.dense, s.dense)
	case u.isDense:
		for _, h := range s.exact {
			raiseRegister(&u.dense, h)
		}
	default:
		u.addExact(s.exact)
	}
}

// addExact adds hashes in ascending order.
func (u *Union) addExact(hashes []uint64) {
	if len(hashes) == 0 {
		return
	}
	out, a := u.spare[:0], u.exact
	for _, h := range hashes {
		for len(a) > 0 && a[0] < h {
			out, a = append(out, a[0]), a[1:]
		}
		if len(a) > 0 && a[0] == h {
			a = a[1:]
		}
		out = append(out, h)
	}
	u.exact, u.spare = append(out, a...), u.exact
	if len(u.exact) > MaxUnion {
		u.densify()
	}
}

// AddHashes adds hashes in any order.
func (u *Union) AddHashes(hashes []uint64) {
	if u.isDense {
		for _, h := range hashes {
			raiseRegister(&u.dense, h)
		}
		return
	}
	sorted := slices.Clone(hashes)
	slices.Sort(sorted)
	u.addExact(slices.Compact(sorted))
}

func (u *Union) densify() {
	if u.isDense {
		return
	}
	u.isDense = true
	for _, h := range u.exact {
		raiseRegister(&u.dense, h)
	}
	u.exact = u.exact[:0]
}

// Exact returns the number of values if it is known exactly.
func (u *Union) Exact() (n int64, exact bool) {
	return int64(len(u.exact)), !u.isDense
}

// Count returns the number of distinct values, and its relative standard error: 0 if it is exact.
func (u *Union) Count() (n int64, relative float64) {
	if u.isDense {
		with := ranksOf(&u.dense)
		return estimate(&with), Error
	}
	return int64(len(u.exact)), 0
}
