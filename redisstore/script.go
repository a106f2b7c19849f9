package redisstore

import (
	"context"
	_ "embed" // the scripts
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

var (
	//go:embed lua/epoch.lua
	epochLua string
	//go:embed lua/purge.lua
	purgeLua string
	//go:embed lua/round.lua
	roundLua string
	//go:embed lua/republish.lua
	republishLua string
	//go:embed lua/reset.lua
	resetLua string
	//go:embed lua/probe.lua
	probeLua string
	//go:embed lua/direct.lua
	directLua string
	//go:embed lua/expiry_key.lua
	expiryKeyLua string
	//go:embed lua/expiry_field.lua
	expiryFieldLua string
	//go:embed lua/expiry_tairhash.lua
	expiryTairhashLua string
)

// scripts are the scripts for one way of expiring buckets.
type scripts struct {
	round, republish, reset, direct *redis.Script
	directText                      string
}

func newScripts(e Expiry) scripts {
	return scriptsOf(map[Expiry]string{ExpiryKey: expiryKeyLua, ExpiryField: expiryFieldLua,
		ExpiryTairhash: expiryTairhashLua}[e])
}

// scriptsOf makes the scripts that begin with how buckets are expired.
func scriptsOf(expiry string) scripts {
	prefix := expiry + epochLua
	direct, rounds := prefix+directLua, prefix+purgeLua
	return scripts{
		round:     redis.NewScript(rounds + roundLua),
		republish: redis.NewScript(rounds + republishLua),
		reset:     redis.NewScript(rounds + resetLua),
		direct:    redis.NewScript(direct), directText: direct,
	}
}

// scriptCall is one call in a pipeline of them. Without a script it reads all fields of every key,
// and after them the state of the partition, so that what was read is of no earlier epoch and has
// no change in it that the version does not count.
type scriptCall struct {
	script *redis.Script
	keys   []string
	args   []any
	state  string // where epoch, version, quieted and the last change are read
	writer string // whose sequence is read after that, if any
	// ladders are those that the arguments refer to.
	ladders []*leaparray.Ladder
	// line, if it is there, is the whole command with room for its name and for what names the
	// script: text, or its hash.
	line   []any
	text   string
	cmd    *redis.Cmd
	reads  []*redis.Cmd
	told   *redis.Cmd      // the state
	kept   *redis.Cmd      // the writer's sequence, nil if it is not asked for
	rounds []*syncer.Round // in a store's exchange: what is asked for
}

// send adds the call to a pipeline.
func (c *scriptCall) send(ctx context.Context, pipe redis.Pipeliner) {
	if c.line != nil {
		c.line[0], c.line[1] = "evalsha", c.script.Hash()
		c.cmd = pipe.Do(ctx, c.line...)
		return
	}
	if c.script != nil {
		c.cmd = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
		return
	}
	for _, key := range c.keys {
		c.reads = append(c.reads, pipe.Do(ctx, c.args[0], key))
	}
	c.sendState(ctx, pipe)
}

// sendState adds the reading of the partition's state to a pipeline.
func (c *scriptCall) sendState(ctx context.Context, pipe redis.Pipeliner) {
	c.told = pipe.Do(ctx, "HMGET", c.state, "e", "v", "q", "l")
	if c.writer != "" {
		c.kept = pipe.Do(ctx, "GET", c.writer)
	}
}

// sendText is send for a server that doesn't have the script.
func (c *scriptCall) sendText(ctx context.Context, pipe redis.Pipeliner) {
	if c.line != nil {
		c.line[0], c.line[1] = "eval", c.text
		c.cmd = pipe.Do(ctx, c.line...)
		return
	}
	c.cmd = c.script.Eval(ctx, pipe, c.keys, c.args...)
}

// err is why the call failed, or one of its reads, unless that is because of its key.
func (c *scriptCall) err() error {
	if c.script != nil {
		return c.cmd.Err()
	}
	for _, cmd := range c.reads {
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
	}
	return c.told.Err()
}

// run sends the calls in one pipeline. Those whose script the server doesn't have were not carried
// out: they are sent again with the script's text, which leaves it there for the next time. Where a
// key may have been read after the state of its partition, that is read once more.
func run(ctx context.Context, client redis.UniversalClient, calls []*scriptCall) {
	ctx, detour := noteDetours(ctx)
	pipe := client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	pipe = client.Pipeline()
	again := 0
	for _, c := range calls {
		switch err := c.err(); {
		case err == nil && c.script == nil && detour.Load():
			c.sendState(ctx, pipe)
			again++
		case err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT"):
			c.sendText(ctx, pipe)
			again++
		}
	}
	if again > 0 {
		_, _ = pipe.Exec(ctx)
	}
	for _, c := range calls {
		if err := c.err(); err != nil && !isRefusal(err) {
			relearn(ctx, client)
			break
		}
	}
}

// relearn has a cluster's client ask again who serves what, after a node did not answer. By itself
// it does so once a minute or when a node says MOVED: one that is gone says nothing, and its
// replica may have taken over long ago.
func relearn(ctx context.Context, client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

// run has Redis carry out calls in one pipeline, and counts how long it takes.
func (s *Store) run(ctx context.Context, calls []*scriptCall) {
	s.roundTrips.Add(1)
	began := time.Now()
	run(ctx, s.client, calls)
	s.durations.Observe(time.Since(began))
}
