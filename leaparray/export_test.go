package leaparray

// MostForeign is how many foreign cells a counter may have.
const MostForeign = mostForeign

// BucketsKept returns how many buckets of a level are kept.
func (l *Ladder) BucketsKept(level int) int { return int(l.count[level]) }

// Around is enclosingBucket.
var Around = enclosingBucket
