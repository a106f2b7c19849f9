package syncer

import "twotier.dev/twotier/leaparray"

// The count of a ban states when it ends, so that another length of the rule changes no ban. A ban
// of up to an hour ends with a bucket of the fine level, in its last millisecond, and a longer one
// with one of the coarse level: its own level. Its bucket there counts from bit 0 how many bans
// have started, and from a bit that depends on the level in how many buckets they end. If writers
// have started several without knowing of each other, their end is the average. The bucket of the
// other level counts the ban from bit 4 on, where it ends nothing. All of these are small enough
// for a sparse bucket.
//
// The count of a ban that version 0.1.0 has started is 1, without an end. It ends by the length
// of the rule now. That version only asks whether there is a count within this length.
//
// direct.lua does the same.
const (
	banStarts = 1<<4 - 1 // the bits of the starts
	banOther  = 1 << 4
)

// banEnds are the bits from which on the two levels of a ban count its end.
var banEnds = [2]int{8, 12}

// banLevel returns the own level of a ban of so many milliseconds.
func banLevel(l *leaparray.Ladder, length int64) int {
	if length <= l.FineSpan() {
		return 0
	}
	return 1
}

// BanCounts returns what a ban of so many milliseconds that starts now counts in each level.
func BanCounts(l *leaparray.Ladder, now, length int64) (n [2]int64) {
	own := banLevel(l, length)
	n = [2]int64{banOther, banOther}
	end := l.Index(own, now+length) + 1
	n[own] = 1 + (end-l.Index(own, now))<<banEnds[own]
	return n
}

// BanEnd returns when the last of the bans ends that a view of their key counts, in unix
// milliseconds. The length of the rule is that of bans without an end.
func BanEnd(v leaparray.View, length int64) (end int64) {
	l := v.Ladder
	for level, bit := range banEnds {
		width := l.Width(level)
		most, own := l.Levels()[level].Span().Milliseconds()/width+1, banLevel(l, length) == level
		v.Each(level, func(idx, n int64) {
			switch starts, ends := n&banStarts, n>>bit; {
			case n <= 0 || starts == 0:
			case ends > 0:
				end = max(end, (idx+min(most, (ends+starts-1)/starts))*width-1)
			case own:
				end = max(end, (idx+1)*width+length-1)
			}
		})
	}
	return end
}
