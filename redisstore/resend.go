package redisstore

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// resends is a hook on the nodes of a cluster. If a node does not run a command, the client sends
// it again later, perhaps to another node, while the rest of its pipeline was answered. Then
// commands do not run in the order in which they were sent. Callers that depend on the order find
// out through [watchResends].
type resends struct{}

// resendKey is the context key of the flag to set.
type resendKey struct{}

// watchResends returns a context for commands, and a function that reports whether any of them has
// been sent again so far.
func watchResends(ctx context.Context) (context.Context, *atomic.Bool) {
	seen := new(atomic.Bool)
	return context.WithValue(ctx, resendKey{}, seen), seen
}

// DialHook implements redis.Hook.
func (resends) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (resends) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. It counts any error as a resend: which errors make the
// client send a command again is the client's business.
func (resends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		failed := func(c redis.Cmder) bool { return c.Err() != nil }
		seen, ok := ctx.Value(resendKey{}).(*atomic.Bool)
		if ok && slices.ContainsFunc(cmds, failed) {
			seen.Store(true)
		}
		return err
	}
}
