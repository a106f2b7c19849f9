package connect

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// safePolicy is the maxmemory-policy under which nothing is evicted.
const safePolicy = "noeviction"

// policies has the last known maxmemory-policy of every server, by address.
type policies struct {
	mu   sync.Mutex
	seen map[string]string
}

// record records a policy. It reports whether the policy changed; a server whose policy was not
// known is taken to have had a safe one.
func (p *policies) record(server, policy string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.seen[server]
	if !known {
		before = safePolicy
	}
	if p.seen == nil {
		p.seen = map[string]string{}
	}
	p.seen[server] = policy
	return before != policy
}

// CheckPolicy logs that a server may evict counts when its memory is full, or no longer does, once
// for each change. It ignores a server that forbids INFO or does not answer.
func (c *Conn) CheckPolicy(ctx context.Context, logger *slog.Logger) {
	_ = c.EachPrimary(ctx, func(ctx context.Context, node *redis.Client) error { // it never fails
		info, err := node.Info(ctx, "memory").Result()
		_, rest, ok := strings.Cut(info, "maxmemory_policy:")
		policy, _, _ := strings.Cut(rest, "\r\n")
		server := c.Name(node)
		if err != nil || !ok || !c.policies.record(server, policy) {
			return nil
		}
		if policy == safePolicy {
			logger.Info("Redis no longer evicts counts", "server", server, "policy", policy)
		} else {
			logger.Warn("Redis may evict counts when its memory is full; set "+
				"maxmemory-policy to noeviction",
				"server", server, "policy", policy)
		}
		return nil
	})
}
