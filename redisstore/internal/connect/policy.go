package connect

import (
	"context"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"
)

// safePolicy is the maxmemory-policy under which nothing is evicted.
const safePolicy = "noeviction"

// CheckPolicy logs that a server may evict counts when its memory is full, or no longer does, once
// for each change. It ignores a server that forbids INFO or does not answer.
func (c *Conn) CheckPolicy(ctx context.Context, logger *slog.Logger) {
	_ = c.EachPrimary(ctx, func(ctx context.Context, node *redis.Client) error { // it never fails
		info, err := node.Info(ctx, "memory").Result()
		_, rest, ok := strings.Cut(info, "maxmemory_policy:")
		policy, _, _ := strings.Cut(rest, "\r\n")
		if err != nil || !ok {
			return nil
		}
		server := c.Name(node)
		before, known := c.policies.Swap(server, policy)
		switch {
		case before == policy || !known && policy == safePolicy:
		case policy == safePolicy:
			logger.Info("Redis no longer evicts counts", "server", server, "policy", policy)
		default:
			logger.Warn("Redis may evict counts when its memory is full; set "+
				"maxmemory-policy to noeviction", "server", server, "policy", policy)
		}
		return nil
	})
}
