package rpc

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/ring"
)

// Broadcast calls fn concurrently for every member of a table except this node, and returns when
// all calls have returned. Their context is done after timeout.
func Broadcast(
	ctx context.Context, t *ring.Table, timeout time.Duration,
	fn func(ctx context.Context, m *ring.Member),
) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var done sync.WaitGroup
	for i := range t.Len() {
		if i != t.Self() {
			done.Go(func() { fn(ctx, t.Member(i)) })
		}
	}
	done.Wait()
}
