package leaparray

// MaxIDs is the number of different levels that the buckets of a key can have, over all ladders
// that it was ever counted by.
const MaxIDs = 10

// Terms say how a ladder fits to what is stored, by it and by others that count the same keys.
type Terms struct {
	// ID is the number by which each level is stored. Levels of the same width have the same one.
	// IDs differ and are below MaxIDs.
	ID [MaxLevels]uint8
	// Reach is the longest window, in milliseconds, that each level has everything of. Others may
	// have fewer buckets of it, or may not have counted by it for that long.
	Reach [MaxLevels]int64
	// Stored are all levels that may be stored, by number, those that the ladder lacks included,
	// with as many buckets as anybody keeps. Count is 0 where there is none.
	Stored [MaxIDs]Level
}

// Under returns the same ladder under terms, which are asked for whenever they matter. While there
// are none, it is under those of l. Without any, a level's number is its position, and it reaches
// as far as its span.
func (l *Ladder) Under(terms func() *Terms) *Ladder {
	under, before := *l, l.terms
	under.terms = func() *Terms {
		if t := terms(); t != nil || before == nil {
			return t
		}
		return before()
	}
	return &under
}

// present returns the terms, nil if there are none.
func (l *Ladder) present() *Terms {
	if l.terms == nil {
		return nil
	}
	return l.terms()
}

// ID returns the number by which a level is stored.
func (l *Ladder) ID(level int) uint8 {
	if t := l.present(); t != nil {
		return t.ID[level]
	}
	return uint8(level)
}

// LevelOf is the inverse of ID. It returns -1 for a number that is no level of this ladder.
func (l *Ladder) LevelOf(id uint8) int {
	t := l.present()
	if t == nil && int(id) < len(l.levels) {
		return int(id)
	}
	for level := 0; t != nil && level < len(l.levels); level++ {
		if t.ID[level] == id {
			return level
		}
	}
	return -1
}

// Reach returns the longest window, in milliseconds, that is read from a level if no finer one has
// all of it. The coarsest level is read even if it does not have everything, because there is no
// other.
func (l *Ladder) Reach(level int) int64 { return l.reach(l.present(), level) }

func (l *Ladder) reach(t *Terms, level int) int64 {
	if t == nil || level == len(l.levels)-1 {
		return l.span[level]
	}
	return min(t.Reach[level], l.span[level])
}

// lacks reports whether a level may not have everything that its span covers.
func (l *Ladder) lacks(level int) bool {
	t := l.present()
	return t != nil && t.Reach[level] < l.span[level]
}

// Stored returns the levels that may be stored, by number, those that the ladder lacks included,
// with as many buckets as anybody keeps. Count is 0 where there is none.
func (l *Ladder) Stored() (all [MaxIDs]Level) {
	if t := l.present(); t != nil {
		all = t.Stored
	}
	for level, lv := range l.levels {
		id := l.ID(level)
		lv.Count = max(lv.Count, all[id].Count)
		all[id] = lv
	}
	return all
}

// Keep is how many buckets behind the newest one are kept.
func (l Level) Keep() int64 {
	width := max(1, l.Width.Milliseconds())
	return int64(l.Count) + (MaxAhead.Milliseconds()+width-1)/width
}
