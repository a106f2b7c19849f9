package hotkeys

import (
	"context"
	"time"
)

// LeaseTime is how long a lease lasts, MaxGrants the maximum number of keys granted at a time.
const (
	LeaseTime = leaseTime
	MaxGrants = maxGrants
)

// LeaseOver reports whether a lease, accepted at taken under ctx, is over at now.
func LeaseOver(ctx context.Context, taken, now time.Time) bool {
	l := lease{since: askedUntil(ctx, taken), length: leaseTime}
	return l.over(now)
}
