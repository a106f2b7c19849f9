package client

import (
	"context"
	"strconv"
	"time"
	"unicode/utf8"
)

// IsActionAllowed reports whether a user may do this once more, at most limit times in any period,
// and counts it if so. The user and the action may be any texts. The clients for Python and Node.js
// count the same user and action under the same key, in the default namespace.
//
// Without an answer it returns false and the error, see [Client.Acquire]: whether to go on without
// a limit is up to the caller.
func (c *Client) IsActionAllowed(ctx context.Context, user, action string, period time.Duration,
	limit int64) (bool, error) {
	// The length separates texts that would read the same: "a:b" doing "c" and "a" doing "b:c".
	key := strconv.Itoa(utf8.RuneCountInString(user)) + ":" + user + ":" + action
	a, err := c.Acquire(ctx, AcquireRequest{Check: Check{Key: SafeKey(key),
		Limits: []Limit{{Window: period, Max: limit}}}})
	return a.Allowed, err
}
