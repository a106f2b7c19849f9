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

// CompanionLadders returns the ladders of companions by their namespaces. Their events lie ahead,
// so they keep their milliseconds.
func CompanionLadders() map[string]*leaparray.Ladder {
	ladders := map[string]*leaparray.Ladder{}
	for name, span := range twotier.CompanionNamespaces() {
		l, err := leaparray.NewLadder(leaparray.DefaultExact,
			leaparray.Level{Width: time.Minute, Count: int(span / time.Minute)})
		if err != nil {
			panic(err) // impossible with constant levels
		}
		ladders[name] = l
	}
	return ladders
}
