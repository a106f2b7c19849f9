package syncer

import "time"

// The shortest and the longest pause before a retry.
const (
	firstBackoff   = 25 * time.Millisecond
	longestBackoff = 2 * time.Second
)

// backoff says when to retry something that failed: after a pause that doubles with each
// consecutive failure.
type backoff struct {
	failures int // in a row
	pause    time.Duration
	until    time.Time
}

func (b *backoff) failing() bool { return b.failures > 0 }

// waiting reports whether it is too early to retry.
func (b *backoff) waiting(now time.Time) bool { return now.Before(b.until) }

func (b *backoff) fail(now time.Time) {
	b.failures++
	b.pause = min(max(2*b.pause, firstBackoff), longestBackoff)
	b.until = now.Add(b.pause)
}

func (b *backoff) succeed() { *b = backoff{} }
