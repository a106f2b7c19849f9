package limiter

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// GCRA is go-redis/redis_rate: it stores one number per rule, the time at which the next event
// would conform. It smooths rather than counts: after a burst of a rule's whole Max it admits more
// as time passes, up to twice Max in a window. It always uses Redis's clock, and checks one rule
// after the other: events counted by an earlier rule stay counted if a later one refuses.
type GCRA struct {
	limiter *redis_rate.Limiter
}

// NewGCRA returns the limiter of redis_rate.
func NewGCRA(rdb *redis.Client) *GCRA { return &GCRA{redis_rate.NewLimiter(rdb)} }

// Name returns the name in tables.
func (g *GCRA) Name() string { return "redis_rate (GCRA)" }

// Decide checks one rule after the other until one refuses, with a round trip for each.
func (g *GCRA) Decide(ctx context.Context, calls []Call) (int, error) {
	return oneByOne(calls, func(c Call) (bool, error) {
		for _, check := range c.Checks {
			for _, l := range check.Limits {
				if ok, err := g.ask(ctx, check, l); !ok {
					return false, err
				}
			}
		}
		return true, nil
	})
}

func (g *GCRA) ask(ctx context.Context, c Check, l Limit) (bool, error) {
	rule := redis_rate.Limit{Rate: int(l.Max), Burst: int(l.Max),
		Period: time.Duration(l.Window) * time.Millisecond}
	res, err := g.limiter.AllowN(ctx, string(c.Key)+":"+strconv.FormatInt(l.Window, 10), rule,
		int(c.N))
	if err != nil {
		return false, fmt.Errorf("redis_rate: %w", err)
	}
	return res.Allowed > 0, nil
}
