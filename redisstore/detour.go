package redisstore

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// detours is a hook on the nodes of a cluster. If a node does not run a command, the client sends
// it again later, perhaps to another node, while the rest of its pipeline was answered. Then
// commands do not run in the order in which they were sent. Callers that depend on the order find
// out through [noteDetours].
type detours struct{}

// detoured is the context key of the flag to set.
type detoured struct{}

// noteDetours returns a context for commands, and a function that reports whether any of them has
// been sent again so far.
func noteDetours(ctx context.Context) (context.Context, *atomic.Bool) {
	seen := new(atomic.Bool)
	return context.WithValue(ctx, detoured{}, seen), seen
}

// DialHook implements redis.Hook.
func (detours) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (detours) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. It counts any error as a detour: which errors make the
// client send a command again is the client's business.
func (detours) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		failed := func(c redis.Cmder) bool { return c.Err() != nil }
		seen, ok := ctx.Value(detoured{}).(*atomic.Bool)
		if ok && slices.ContainsFunc(cmds, failed) {
			seen.Store(true)
		}
		return err
	}
}
