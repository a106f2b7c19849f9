package leaparray

// Series calls fn with the start, in unix milliseconds, and the count of every bucket in the window
// of this length that ends at a moment, oldest first. All have the width of the widest cell that
// the window touches, which it returns in milliseconds. It reports false as Count does.
func (v View) Series(window, at int64, fn func(start, n int64)) (width int64, ok bool) {
	from := at - window + 1
	oldest, ok := v.Ladder.Bucket(from, v.Now)
	if !ok || !v.covers(window, at) {
		return 0, false
	}
	width = oldest.Width
	widest := func(s Stretch, _ int64) bool {
		if s.Start <= at && s.End() > from {
			width = max(width, s.Width)
		}
		return true
	}
	v.Ladder.EachCell(v.A, widest)
	v.Ladder.EachCell(v.B, widest)
	first := from - from%width
	counts := make([]int64, (at-first)/width+1)
	add := func(s Stretch, n int64) bool {
		if s.Start <= at && s.End() > first {
			counts[max(0, s.Start-first)/width] += n
		}
		return true
	}
	v.Ladder.EachCell(v.A, add)
	v.Ladder.EachCell(v.B, add)
	for i, n := range counts {
		fn(first+int64(i)*width, n)
	}
	return width, true
}
