package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// A ban is an event at the millisecond in which the ban ends, so a new length in the rule changes
// no existing ban. If several writers have started one independently, the last to end counts.
// direct.lua does the same.

// BanEnd returns the end of the last ban in a view of a ban's key, in unix milliseconds, or 0 if
// none ends after now.
func BanEnd(v leaparray.View) (end int64) {
	ends := func(at leaparray.Stretch, _ int64) bool {
		if last := at.End() - 1; last > max(end, v.Now) && v.Value(at) > 0 {
			end = last
		}
		return true
	}
	v.Ladder.EachCell(v.A, ends)
	v.Ladder.EachCell(v.B, ends)
	return end
}

// BanLadder returns the ladder of all bans.
func BanLadder() *leaparray.Ladder {
	l, err := leaparray.NewLadder(leaparray.DefaultExact,
		leaparray.Level{Width: time.Minute, Count: int(twotier.MaxBan / time.Minute)})
	if err != nil {
		panic(err) // impossible with constant levels
	}
	return l
}
