package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrNotAvailable says that the server lacks a command that a limiter is made of.
var ErrNotAvailable = errors.New("not available on this server")

// Scripted is a limiter that is one Lua script in Redis.
type Scripted struct {
	name   string
	rdb    *redis.Client
	script *redis.Script
	// encode turns a call into the script's KEYS and ARGV.
	encode func(checks []Check, ts int64) (keys []string, argv []any)
}

// Connect returns a client without the library's retries, which would count an event twice when a reply is lost.
func Connect(addr string, conns int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns, MaxRetries: -1, ContextTimeoutEnabled: true})
}

// Rivals returns the limiters that keep everything in the server that rdb is connected to, and the reasons why others
// can't run there.
func Rivals(ctx context.Context, rdb *redis.Client) (rivals []*Scripted, missing []error, err error) {
	rivals = []*Scripted{NewZSet(rdb), NewHash(rdb, LastN), NewHash(rdb, WholeOldest), NewStream(rdb), NewIncr(rdb)}
	field, err := NewFieldExpiry(ctx, rdb)
	switch {
	case errors.Is(err, ErrNotAvailable):
		missing = append(missing, err)
	case err != nil:
		return nil, nil, err
	default:
		rivals = append(rivals, field)
	}
	for _, r := range rivals {
		if err := r.Load(ctx); err != nil {
			return nil, nil, err
		}
	}
	return rivals, missing, nil
}

// Load gives the server the script, which AcquireEach takes for granted.
func (s *Scripted) Load(ctx context.Context) error {
	if err := s.script.Load(ctx, s.rdb).Err(); err != nil {
		return fmt.Errorf("load script of %s: %w", s.name, err)
	}
	return nil
}

// Name is how tables call it.
func (s *Scripted) Name() string { return s.name }

// AcquireAll runs the script once.
func (s *Scripted) AcquireAll(ctx context.Context, checks []Check, ts int64) (bool, error) {
	keys, argv := s.encode(checks, ts)
	allowed, err := s.script.Run(ctx, s.rdb, keys, argv...).Bool()
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.name, err)
	}
	return allowed, nil
}

// AcquireEach decides calls one by one in a single pipeline and returns how many were admitted. The script must have
// been loaded (Load): there is no falling back to EVAL within a pipeline.
func (s *Scripted) AcquireEach(ctx context.Context, calls []Call) (admitted int, err error) {
	pipe := s.rdb.Pipeline()
	for _, c := range calls {
		keys, argv := s.encode(c.Checks, c.TS)
		s.script.EvalSha(ctx, pipe, keys, argv...)
	}
	replies, err := pipe.Exec(ctx)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	for _, r := range replies {
		if allowed, _ := r.(*redis.Cmd).Bool(); allowed {
			admitted++
		}
	}
	return admitted, nil
}
