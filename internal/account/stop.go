package account

import (
	"context"
	"time"
)

// ReadBy returns by when clients have to read their answers if a server is to stop before ctx ends:
// when half of the time is over. It returns the zero Time if ctx never ends.
func ReadBy(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(time.Until(end) / 2)
}
