package account

import (
	"context"
	"time"
)

// ReadDeadline returns the time by which clients must read their answers if a server is to stop
// before ctx ends: after half of the remaining time. It returns the zero Time if ctx never ends.
func ReadDeadline(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(time.Until(end) / 2)
}

// PastDeadline returns a deadline that has passed: it ends a read at once.
func PastDeadline() time.Time { return time.Unix(1, 0) }
