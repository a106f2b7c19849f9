package syncer

import "time"

// The least and the longest pause before something that failed is tried again.
const (
	firstBackoff   = 25 * time.Millisecond
	longestBackoff = 2 * time.Second
)

// backoff is when something that failed is tried again: after a pause that doubles with each
// failure in a row.
type backoff struct {
	failures int // in a row
	pause    time.Duration
	until    time.Time
}

func (b *backoff) failing() bool { return b.failures > 0 }

// waiting reports whether it is too early for another try.
func (b *backoff) waiting(now time.Time) bool { return now.Before(b.until) }

func (b *backoff) fail(now time.Time) {
	b.failures++
	b.pause = min(max(2*b.pause, firstBackoff), longestBackoff)
	b.until = now.Add(b.pause)
}

func (b *backoff) succeed() { *b = backoff{} }
