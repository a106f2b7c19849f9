package proctest

import "time"

// Recent records a growing number and measures its recent growth. It is not safe for concurrent
// use.
type Recent struct {
	at []time.Time
	n  []int64
}

// Note records the current number.
func (r *Recent) Note(n int64) { r.at, r.n = append(r.at, time.Now()), append(r.n, n) }

// Since returns by how much the number has grown since when, according to the recorded values.
// Before the first record it was 0.
func (r *Recent) Since(when time.Time) int64 {
	i := len(r.at)
	for i > 0 && r.at[i-1].After(when) {
		i--
	}
	before := int64(0)
	if i > 0 {
		before = r.n[i-1]
	}
	return r.total() - before
}

func (r *Recent) total() int64 {
	if len(r.n) == 0 {
		return 0
	}
	return r.n[len(r.n)-1]
}
