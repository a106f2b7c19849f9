package redisstore

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// detours is a hook of a cluster's nodes. What a node did not carry out the client sends again,
// after a pause and perhaps to another node, while the rest of the pipeline was answered: then
// commands are not carried out in the order in which they were sent. Whoever needs that is told by
// [noteDetours].
type detours struct{}

// detoured is the key under which a context has what is to be set.
type detoured struct{}

// noteDetours returns a context of commands, and whether some of those have been sent again so far.
func noteDetours(ctx context.Context) (context.Context, *atomic.Bool) {
	seen := new(atomic.Bool)
	return context.WithValue(ctx, detoured{}, seen), seen
}

// DialHook implements redis.Hook.
func (detours) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (detours) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook. It takes any error for a detour: which of them make
// the client send a command again is its own business.
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
