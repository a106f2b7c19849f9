package rounds

import "time"

// The shortest and the longest pause before a retry, and the longest after a refusal.
const (
	FirstBackoff   = 25 * time.Millisecond
	longestBackoff = 2 * time.Second
	longestRefused = 200 * time.Millisecond // operations may be waiting
)

// Backoff determines when to retry after a failure: after a pause that doubles with each
// consecutive failure.
type Backoff struct {
	Failures int // in a row
	pause    time.Duration
	Until    time.Time
}

// Failing reports whether the last attempt failed.
func (b *Backoff) Failing() bool { return b.Failures > 0 }

// Waiting reports whether it is too early to retry.
func (b *Backoff) Waiting(now time.Time) bool { return now.Before(b.Until) }

// Fail delays a retry by a pause that doubles with each failure.
func (b *Backoff) Fail(now time.Time) {
	b.Failures++
	b.pause = min(max(2*b.pause, FirstBackoff), longestBackoff)
	b.Until = now.Add(b.pause)
}

// Postpone delays a retry by the shortest pause after a late answer, which is no failure.
func (b *Backoff) Postpone(now time.Time) { *b = Backoff{Until: now.Add(FirstBackoff)} }

// recordRefusal delays a retry by a pause that doubles, but stays short, after the store has
// refused something as a whole. The answer shows that the store can be reached, so it is no
// failure.
func (b *Backoff) recordRefusal(now time.Time) {
	pause := min(max(2*b.pause, FirstBackoff), longestRefused)
	*b = Backoff{pause: pause, Until: now.Add(pause)}
}

// Succeed ends the delays.
func (b *Backoff) Succeed() { *b = Backoff{} }
