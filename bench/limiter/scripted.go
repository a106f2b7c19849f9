package limiter

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// ErrNotAvailable says that the server lacks a command that a limiter needs.
var ErrNotAvailable = errors.New("not available on this server")

// Scripted is a limiter that is one Lua script in Redis.
type Scripted struct {
	name   string
	rdb    *redis.Client
	script *redis.Script
	encode encoder
}

// An encoder turns a call into a script's KEYS and ARGV.
type encoder func(checks []Check, ts int64) (keys []string, argv []any)

func newScripted(name string, rdb *redis.Client, script string, encode encoder) *Scripted {
	return &Scripted{name: name, rdb: rdb, script: redis.NewScript(script), encode: encode}
}

// Connect returns a client without the library's retries, which would count an event twice if a
// reply is lost.
func Connect(addr string, conns int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns, MaxRetries: -1,
		ContextTimeoutEnabled: true})
}

// ScriptNames returns the names that [NewScripted] accepts.
func ScriptNames() []string {
	return []string{"zset-lua", "hash-lua", "hash-lua-whole", "hash-field-expiry", "stream-lua",
		"incr-lua"}
}

// NewScripted returns the scripted limiter with one of [ScriptNames] and loads its script into the
// server. The error wraps ErrNotAvailable if the server can't run it.
func NewScripted(ctx context.Context, name string, rdb *redis.Client) (s *Scripted, err error) {
	switch name {
	case "zset-lua":
		s = NewZSet(rdb)
	case "hash-lua":
		s = NewHash(rdb, LastN)
	case "hash-lua-whole":
		s = NewHash(rdb, WholeOldest)
	case "hash-field-expiry":
		s, err = NewFieldExpiry(ctx, rdb)
	case "stream-lua":
		s = NewStream(rdb)
	case "incr-lua":
		s = NewIncr(rdb)
	default:
		err = fmt.Errorf("no script is called %q", name)
	}
	if err != nil {
		return nil, err
	}
	return s, s.load(ctx)
}

// Command returns the command that asks for a decision at ts, in unix milliseconds.
func (s *Scripted) Command(checks []Check, ts int64) []string {
	keys, argv := s.encode(checks, ts)
	words := append([]string{"EVALSHA", s.script.Hash(), strconv.Itoa(len(keys))}, keys...)
	for _, arg := range argv {
		words = append(words, fmt.Sprint(arg))
	}
	return words
}

// load loads the script into the server.
func (s *Scripted) load(ctx context.Context) error {
	if err := s.script.Load(ctx, s.rdb).Err(); err != nil {
		return fmt.Errorf("load script of %s: %w", s.name, err)
	}
	return nil
}

// Name returns the name in tables.
func (s *Scripted) Name() string { return s.name }

// Decide runs the script for each call, all in one pipeline. The script must already be loaded
// ([NewScripted]): within a pipeline there is no fallback to EVAL.
func (s *Scripted) Decide(ctx context.Context, calls []Call) (admitted int, err error) {
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
