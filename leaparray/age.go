package leaparray

// BucketsKept returns how many buckets of a level are kept. The last level keeps twice its number,
// so that a key has every event of the longest window that ends as long ago as an event may be.
func (l *Ladder) BucketsKept(level int) int { return int(l.count[level]) }

// oldest returns the oldest bucket of a level that does not have to fold. Buckets in the same
// bucket of the next level fold together, so that all events within it are equally precise.
func (l *Ladder) oldest(level int, now int64) int64 {
	i := l.index(level, now) - l.count[level]
	if next := level + 1; next < len(l.levels) {
		i = l.index(next, i*l.width[level]) * (l.width[next] / l.width[level])
	}
	return i
}

// CompleteFrom returns the first moment from which on a key certainly still has all events.
func (l *Ladder) CompleteFrom(now int64) int64 {
	last := len(l.levels) - 1
	return l.oldest(last, now) * l.width[last]
}

// Bucket returns the bucket that counts an event of a moment, by its age. It reports false if the
// event is too old to be counted.
func (l *Ladder) Bucket(ts, now int64) (s Stretch, ok bool) {
	a := l.ages(now)
	return a.bucket(ts)
}

// FoldTarget returns the bucket that a cell folds into, and whether it is due: a bucket is due if
// it is too old for its width, a millisecond unless it lies ahead of the present. It ignores
// whether a millisecond is exact. The result is zero for a cell that has left every window.
func (l *Ladder) FoldTarget(s Stretch, now int64) (into Stretch, due bool) {
	a := l.ages(now)
	return a.foldTarget(s)
}

// ages holds the moments at which the levels begin, as of now.
type ages struct {
	*Ladder
	now  int64
	from [MaxLevels]int64 // the first moment that each level counts
}

func (l *Ladder) ages(now int64) ages {
	a := ages{Ladder: l, now: now}
	for level := range l.levels {
		a.from[level] = l.oldest(level, now) * l.width[level]
	}
	return a
}

// bucket is Ladder.Bucket.
func (a *ages) bucket(ts int64) (s Stretch, ok bool) {
	for level, width := range a.width[:len(a.levels)] {
		if ts >= a.from[level] {
			return Stretch{a.index(level, ts) * width, width}, true
		}
	}
	return Stretch{}, false
}

// foldTarget is Ladder.FoldTarget.
func (a *ages) foldTarget(s Stretch) (into Stretch, due bool) {
	if s.End() <= a.from[len(a.levels)-1] {
		return Stretch{}, true
	}
	into, ok := a.bucket(s.Start)
	if s.Width == 1 {
		return into, s.Start <= a.now
	}
	return into, ok && into.Width > s.Width && into.End() >= s.End()
}
