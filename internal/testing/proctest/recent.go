package proctest

import "time"

// Recent remembers a number that grows, to say by how much it grew lately. It is for one goroutine.
type Recent struct {
	at []time.Time
	n  []int64
}

// Note notes what the number is now.
func (r *Recent) Note(n int64) { r.at, r.n = append(r.at, time.Now()), append(r.n, n) }

// Since returns by how much it has grown after a moment, by what was noted.
func (r *Recent) Since(when time.Time) int64 {
	if len(r.n) == 0 {
		return 0
	}
	i := len(r.at) - 1
	for i > 0 && r.at[i].After(when) {
		i--
	}
	return r.n[len(r.n)-1] - r.n[i]
}
