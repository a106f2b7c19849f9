package leaparray

// MaxIDs is the number of different levels that the buckets of a key can have, over all ladders
// that it was ever counted by.
const MaxIDs = 10

// StoredLevels say how the levels of a ladder are stored, by it and by others that count the same
// keys.
type StoredLevels struct {
	// ID is the number by which each level is stored. Levels of the same width have the same one.
	// IDs differ and are below MaxIDs.
	ID [MaxLevels]uint8
	// Reach is the longest window, in milliseconds, that each level has everything of. Others may
	// have fewer buckets of it, or may not have counted by it for that long.
	Reach [MaxLevels]int64
	// All are the levels that may be stored, by number, those that the ladder lacks included. Count
	// is 0 where there is none.
	All [MaxIDs]Level
}

// StoredAs returns the same ladder with levels that are stored as fn says, which is asked whenever
// that matters. While it returns nil, they are stored as those of l. If nothing says how, a level's
// number is its position, and it reaches as far as its span.
func (l *Ladder) StoredAs(fn func() *StoredLevels) *Ladder {
	as, before := *l, l.storedAs
	as.storedAs = func() *StoredLevels {
		if s := fn(); s != nil || before == nil {
			return s
		}
		return before()
	}
	return &as
}

// storedLevels returns how the levels are stored, nil if nothing says so.
func (l *Ladder) storedLevels() *StoredLevels {
	if l.storedAs == nil {
		return nil
	}
	return l.storedAs()
}

// ID returns the number by which a level is stored.
func (l *Ladder) ID(level int) uint8 {
	if s := l.storedLevels(); s != nil {
		return s.ID[level]
	}
	return uint8(level)
}

// LevelOf is the inverse of ID. It returns -1 for a number that is no level of this ladder.
func (l *Ladder) LevelOf(id uint8) int {
	s := l.storedLevels()
	if s == nil && int(id) < len(l.levels) {
		return int(id)
	}
	for level := 0; s != nil && level < len(l.levels); level++ {
		if s.ID[level] == id {
			return level
		}
	}
	return -1
}

// Reach returns the longest window, in milliseconds, that is read from a level if no finer one has
// all of it. The coarsest level is read even if it does not have everything, because there is no
// other.
func (l *Ladder) Reach(level int) int64 { return l.reach(l.storedLevels(), level) }

func (l *Ladder) reach(s *StoredLevels, level int) int64 {
	if s == nil || level == len(l.levels)-1 {
		return l.span[level]
	}
	return min(s.Reach[level], l.span[level])
}

// Lacks reports whether a level may not have everything that its span covers: others keep fewer
// buckets of it, or did so not long ago.
func (l *Ladder) Lacks(level int) bool {
	s := l.storedLevels()
	return s != nil && s.Reach[level] < l.span[level]
}

// Stored returns the levels that may be stored, by number, those that the ladder lacks included,
// with as many buckets as anybody keeps. Count is 0 where there is none.
func (l *Ladder) Stored() (all [MaxIDs]Level) {
	if s := l.storedLevels(); s != nil {
		all = s.All
	}
	for level, lv := range l.levels {
		id := l.ID(level)
		lv.Count = max(lv.Count, all[id].Count)
		all[id] = lv
	}
	return all
}

// Keep is how many buckets behind the newest one are kept: as many as a window that ends now
// touches if the newest one is that behind an event MaxAhead from now, see [Ladder.Beyond].
func (l Level) Keep() int64 {
	width := max(1, l.Width.Milliseconds())
	return int64(l.Count) + (MaxAhead.Milliseconds()+width-1)/width + 1
}
