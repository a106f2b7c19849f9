package retry

import (
	"context"
	"time"
)

// Pause waits for d and returns true, or returns false as soon as ctx is done.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// firstPause is the wait between the first two attempts, lastPause the longest wait.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// Backoff paces attempts at an operation that is expected to succeed within milliseconds.
type Backoff struct {
	until time.Time
	pause time.Duration
}

// Within returns a Backoff for attempts that start within d from now.
func Within(d time.Duration) *Backoff { return &Backoff{until: time.Now().Add(d)} }

// Next reports whether there is time for another attempt. It waits before every attempt except the
// first: a millisecond, then twice as long each time, up to 20 ms.
func (b *Backoff) Next(ctx context.Context) bool {
	if b.pause > 0 {
		Pause(ctx, b.pause)
	}
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	return ctx.Err() == nil && time.Now().Before(b.until)
}
