package hotkeys

import (
	"context"
	"time"
)

// LeaseTime is how long a lease lasts, MaxGrants how many keys are granted at a time.
const (
	LeaseTime = leaseTime
	MaxGrants = maxGrants
)

// LeaseOver reports whether a lease that was taken at one time, when asked with ctx, is over at
// another.
func LeaseOver(ctx context.Context, taken, now time.Time) bool {
	l := lease{since: askedUntil(ctx, taken), length: leaseTime}
	return l.over(now)
}
