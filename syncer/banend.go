package syncer

import "twotier.dev/twotier/leaparray"

// A ban is an event at the millisecond in which it ends, so that another length of the rule changes
// no ban. If writers have started several without knowing of each other, the last one counts.
// direct.lua does the same.

// BanEnd returns when the last of the bans ends that a view of their key counts, in unix
// milliseconds, 0 if there is none that ends after now.
func BanEnd(v leaparray.View) (end int64) {
	ends := func(at leaparray.Stretch, _ int64) bool {
		if last := at.End() - 1; last > max(end, v.Now) && v.Value(at) > 0 {
			end = last
		}
		return true
	}
	v.Ladder.Each(v.A, ends)
	v.Ladder.Each(v.B, ends)
	return end
}
