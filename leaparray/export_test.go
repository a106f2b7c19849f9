package leaparray

// Steps returns how many buckets are looked at to find the fullest of the windows that end in the
// buckets from first to last of a level, the time at which there is room for one more event than a
// full window has, and the value of each of these buckets.
func Steps(v View, level int, window, first, last int64) (most, room, series int) {
	a, b, c := v.line(level, nil), v.line(level, nil), v.line(level, nil)
	a.most(v.Ladder, level, window, first, last)
	b.room(v.Ladder, level, window, first*v.Ladder.width[level], last, 0)
	var end edge
	for i := first; i <= last; i++ {
		c.before(&end, i)
	}
	return a.steps, b.steps, c.steps
}
