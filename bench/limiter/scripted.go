package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotAvailable is returned if the server lacks a command that a limiter needs.
var ErrNotAvailable = errors.New("not available on this server")

// Scripted is a limiter that is one Lua script in Redis.
type Scripted struct {
	title  string
	rdb    *redis.Client
	script *redis.Script
	encode encoder
}

// script is the recipe of a scripted limiter. name is for command lines, and title for tables.
type script struct {
	name, title, source string
	encode              encoder
}

// An encoder turns a call into a script's KEYS and ARGV.
type encoder func(checks []Check, ts int64) (keys []string, argv []any)

// on loads the script into a server.
func (s script) on(ctx context.Context, rdb *redis.Client) (*Scripted, error) {
	l := &Scripted{s.title, rdb, redis.NewScript(s.source), s.encode}
	if err := l.script.Load(ctx, rdb).Err(); err != nil {
		return nil, fmt.Errorf("load script of %s: %w", s.title, err)
	}
	return l, nil
}

// Connect returns a client without the library's retries, which would count an event twice if a
// reply is lost.
func Connect(addr string, conns int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns, MaxRetries: -1,
		ContextTimeoutEnabled: true})
}

// ScriptNames returns the names that [NewScripted] accepts.
func ScriptNames() (names []string) {
	for _, s := range scripts() {
		names = append(names, s.name)
	}
	return names
}

// fieldExpiry is the name of the script that needs a command which not every server has.
const fieldExpiry = "hash-field-expiry"

// NewScripted returns the scripted limiter with one of [ScriptNames] and loads its script into the
// server. The error wraps ErrNotAvailable if the server can't run it.
func NewScripted(ctx context.Context, name string, rdb *redis.Client) (*Scripted, error) {
	list := scripts()
	at := slices.IndexFunc(list, func(s script) bool { return s.name == name })
	if at < 0 {
		return nil, fmt.Errorf("no script is called %q", name)
	}
	if name == fieldExpiry {
		err := rdb.HPExpire(ctx, "limiter:probe", time.Second, "f").Err()
		if err != nil && strings.HasPrefix(err.Error(), "ERR unknown command") {
			err = ErrNotAvailable
		}
		if err != nil {
			return nil, fmt.Errorf("%s: HPEXPIRE: %w", list[at].title, err)
		}
	}
	return list[at].on(ctx, rdb)
}

// Command returns the command for a decision at ts, in unix milliseconds.
func (s *Scripted) Command(checks []Check, ts int64) []string {
	keys, argv := s.encode(checks, ts)
	words := append([]string{"EVALSHA", s.script.Hash(), strconv.Itoa(len(keys))}, keys...)
	for _, arg := range argv {
		words = append(words, fmt.Sprint(arg))
	}
	return words
}

// Name returns the name in tables.
func (s *Scripted) Name() string { return s.title }

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
		return 0, fmt.Errorf("%s: %w", s.title, err)
	}
	for _, r := range replies {
		if allowed, _ := r.(*redis.Cmd).Bool(); allowed {
			admitted++
		}
	}
	return admitted, nil
}
