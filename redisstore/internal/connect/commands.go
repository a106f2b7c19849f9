package connect

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/scripts"
)

// command is a command that the scripts or the store use, with arguments for a trial run.
type command struct {
	name string
	args []any // after the key; nil if it takes none
}

// commonCommands returns the commands used with every way of expiring. All except time take a key.
func commonCommands() []command {
	return []command{
		{"del", []any{}}, {"set", []any{"1", "PX", "1000"}}, {"get", []any{}}, {"exists", []any{}},
		{"append", []any{"1"}}, {"getrange", []any{"0", "1"}},
		{"pexpire", []any{"1000"}}, {"pttl", []any{}},
		{"pexpireat", []any{"1"}}, {"time", nil}, {"hincrby", []any{"f", "1"}},
		{"hset", []any{"f", "1"}},
		{"hget", []any{"f"}}, {"hmget", []any{"f"}}, {"hgetall", []any{}}, {"hlen", []any{}},
		{"hdel", []any{"f"}},
	}
}

// expiryCommands returns the additional commands of one way of expiring.
func expiryCommands(expiry string) []command {
	switch expiry {
	case scripts.ExpireFields:
		return []command{{"hpexpire", []any{"1000", "FIELDS", "1", "f"}}}
	case scripts.ExpireTairhash:
		return []command{
			{"exhset", []any{"f", "1"}}, {"exhpexpire", []any{"f", "1000"}}, {"exhget", []any{"f"}},
			{"exhmget", []any{"f"}}, {"exhgetall", []any{}}, {"exhlen", []any{}},
			{"exhdel", []any{"f"}},
		}
	}
	return nil
}

// missing lists the commands and permissions that a server denies this store.
type missing struct {
	unknown   []string // commands that it does not have
	forbidden []string // commands that the user may not use
	keys      bool     // the user may not use our keys
}

// forbiddenCommand finds the command in a server's refusal.
var forbiddenCommand = regexp.MustCompile(`'([a-z|]+)' command`)

// record records why a command failed. It reports false if the reason has nothing to do with
// permissions: the server may be out of memory, or a replica.
func (m *missing) record(name string, err error) bool {
	text := strings.ToLower(err.Error())
	switch {
	case strings.Contains(text, "unknown command"), strings.Contains(text, "unknown redis command"):
		m.unknown = append(m.unknown, name)
	case strings.Contains(text, "access at least one of the keys"),
		strings.Contains(text, "access a key"),
		strings.Contains(text, "permissions to access"):
		m.keys = true
	case strings.Contains(text, "can't run this command"), strings.Contains(text, "noperm"),
		strings.Contains(text, "has no permissions"):
		if found := forbiddenCommand.FindStringSubmatch(text); found != nil {
			name = found[1]
		}
		if !slices.Contains(m.forbidden, name) {
			m.forbidden = append(m.forbidden, name)
		}
	default:
		return false
	}
	return true
}

// TryCommands tries every needed command on a key reserved for the purpose, instead of guessing
// from a version or failing in the middle of a script. A command that the server refuses only at
// the moment, for another reason, counts as available. payloads reports whether new keys can be
// made from payloads.
func (c *Conn) TryCommands(ctx context.Context, expiry string) (payloads bool, err error) {
	var m missing
	if err := c.Client.Ping(ctx).Err(); err != nil && !m.record("ping", err) {
		return false, fmt.Errorf("ping: %w", err)
	}
	if err := c.tryEach(ctx, expiry, &m); err != nil {
		return false, fmt.Errorf("probe: %w", err)
	}
	if len(m.unknown)+len(m.forbidden) > 0 || m.keys {
		return false, c.deniedError(expiry, &m)
	}
	return expiry == scripts.ExpireKeys && c.acceptsPayload(ctx), nil
}

// tryEach tries every command on a key, which it deletes before and after.
func (c *Conn) tryEach(ctx context.Context, expiry string, m *missing) error {
	key, pipe := c.prefix.ProbeKey(), c.Client.Pipeline()
	script := redis.NewScript("return 1")
	script.Eval(ctx, pipe, []string{key})
	script.EvalSha(ctx, pipe, []string{key})
	names := []string{"eval", "evalsha"}
	all := slices.Concat(commonCommands(), expiryCommands(expiry))
	for _, one := range append(all, all[0]) {
		args := []any{one.name}
		if one.args != nil {
			args = append(append(args, key), one.args...)
		}
		names = append(names, one.name)
		pipe.Do(ctx, args...)
	}
	for i, cmd := range scripts.Execute(ctx, pipe) {
		err := cmd.Err()
		if err != nil && !m.record(names[i], err) && (i == 0 || !scripts.IsRefusal(err)) {
			return err
		}
	}
	return nil
}

// acceptsPayload reports whether new keys can be made from payloads. A server may lack RESTORE,
// forbid it, or turn a payload into something else: miniredis makes a string.
func (c *Conn) acceptsPayload(ctx context.Context) bool {
	var p layout.Payload
	p.Add([]byte("field"), []byte("value"))
	text, _ := p.Text()
	key, pipe := c.prefix.ProbeKey()+rand.Text(), c.Client.Pipeline() // of no other process
	pipe.Restore(ctx, key, time.Second, text)
	value := pipe.HGet(ctx, key, "field")
	pipe.Del(ctx, key)
	_, _ = pipe.Exec(ctx) // value has the error
	return value.Val() == "value"
}

// deniedError returns an error that names the missing commands or permissions and the remedy.
func (c *Conn) deniedError(expiry string, m *missing) error {
	if len(m.unknown) > 0 {
		name := strings.ToUpper(m.unknown[0])
		if slices.ContainsFunc(expiryCommands(expiry),
			func(c command) bool { return c.name == m.unknown[0] }) {
			return fmt.Errorf("%w: --redis-expiry=%s needs the command %s, which it does not "+
				"have; use --redis-expiry=key",
				ErrMismatch, expiry, name)
		}
		return fmt.Errorf("%w: it does not have the command %s, or has it under another name",
			ErrMismatch, name)
	}
	slices.Sort(m.forbidden)
	what, rules := "", ""
	if m.keys {
		what = " keys that begin with " + c.prefix.Start()
		rules = " ~" + c.prefix.Start() + "*"
	}
	for _, name := range m.forbidden {
		what += " " + strings.ToUpper(name)
	}
	for _, name := range m.forbidden {
		rules += " +" + name
	}
	return fmt.Errorf("%w: user %s may not use%s; let an administrator run ACL SETUSER %s%s",
		ErrMismatch, c.URL.User(), what, c.URL.User(), rules)
}
