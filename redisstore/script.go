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
	//go:embed lua/cells.lua
	cellsLua string
	//go:embed lua/epoch.lua
	epochLua string
	//go:embed lua/rounds.lua
	roundsLua string
	//go:embed lua/round.lua
	roundLua string
	//go:embed lua/republish.lua
	republishLua string
	//go:embed lua/reset.lua
	resetLua string
	//go:embed lua/probe.lua
	probeLua string
	//go:embed lua/payload.lua
	payloadLua string
	//go:embed lua/keys.lua
	keysLua string
	//go:embed lua/direct.lua
	directLua string
	//go:embed lua/rules.lua
	rulesLua string
	//go:embed lua/meta.lua
	metaLua string
	//go:embed lua/distinct.lua
	distinctLua string
	//go:embed lua/expiry_key.lua
	expiryKeyLua string
	//go:embed lua/expiry_field.lua
	expiryFieldLua string
	//go:embed lua/expiry_tairhash.lua
	expiryTairhashLua string
)

// scripts are the scripts for one way of expiring buckets.
type scripts struct {
	round, republish, reset, keys, direct, rules, meta, distinct *redis.Script
	directText                                                   string
}

func newScripts(e Expiry) scripts {
	return scriptsOf(map[Expiry]string{ExpiryKey: expiryKeyLua, ExpiryField: expiryFieldLua,
		ExpiryTairhash: expiryTairhashLua}[e])
}

// scriptsOf returns the scripts, which all begin with the code that expires buckets.
func scriptsOf(expiry string) scripts {
	prefix := expiry + cellsLua + epochLua
	direct, rounds := prefix+directLua, prefix+roundsLua
	return scripts{
		round:     redis.NewScript(rounds + roundLua),
		republish: redis.NewScript(rounds + republishLua),
		reset:     redis.NewScript(rounds + resetLua),
		keys:      redis.NewScript(rounds + keysLua),
		rules:     redis.NewScript(rulesLua),
		meta:      redis.NewScript(metaLua),
		distinct:  redis.NewScript(distinctLua),
		direct:    redis.NewScript(direct), directText: direct,
	}
}

// scriptCall is one call in a pipeline. Without a script, it reads all fields of every key and,
// after them, the state of the partition. In this order, the fields are of no later epoch than the
// state, and contain no change that its version does not count.
type scriptCall struct {
	script *redis.Script
	keys   []string
	args   []any
	state  string // key of the epoch, version, quieted and last change
	writer string // if set, the key of the sequence that is read after that
	// own marks the sequence as the caller's. As long as nobody else has made a change since, it
	// need not be read.
	own bool
	// ladders are the ladders that args refer to.
	ladders []*leaparray.Ladder
	// parts are the arguments that describe the work on keys, and alike is their decoded form.
	parts []any
	alike []part
	// payloads allows sending keys that are believed to be new as payloads.
	payloads bool
	// line, if set, is the whole command, with room for the command's name and for the text or the
	// hash of the script.
	line   []any
	text   string
	cmd    *redis.Cmd
	reads  []*redis.Cmd
	told   *redis.Cmd      // the reply with the state
	kept   *redis.Cmd      // the reply with the writer's sequence, nil if not asked for
	rounds []*syncer.Round // in a store's exchange: the rounds it serves
	// mayHaveRun is set by run once an attempt before the last one may have been carried out, or
	// the last one failed and may have been: after that, an error leaves the outcome open. It stays
	// set if the call is run again.
	mayHaveRun bool
	late       bool // it has no answer yet, from a server that answers others
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

// sendState adds commands to a pipeline that read the partition's state.
func (c *scriptCall) sendState(ctx context.Context, pipe redis.Pipeliner) {
	c.told = pipe.Do(ctx, "HMGET", c.state, "e", "v", "q", "l")
	if c.writer != "" && !c.own {
		c.sendSequence(ctx, pipe)
	}
}

// sendSequence adds a command to a pipeline that reads the sequence of the writer of the last
// change that the caller knows of.
func (c *scriptCall) sendSequence(ctx context.Context, pipe redis.Pipeliner) {
	c.kept = pipe.Do(ctx, "GET", c.writer)
}

// overtaken reports whether the last change is no longer the caller's own.
func (c *scriptCall) overtaken() bool {
	if !c.own {
		return false
	}
	state, _ := c.told.Slice()
	return textAt(state, 3) != c.rounds[0].LastChange
}

// sendText is send for a server that doesn't have the script yet.
func (c *scriptCall) sendText(ctx context.Context, pipe redis.Pipeliner) {
	if c.line != nil {
		c.line[0], c.line[1] = "eval", c.text
		c.cmd = pipe.Do(ctx, c.line...)
		return
	}
	c.cmd = c.script.Eval(ctx, pipe, c.keys, c.args...)
}

// err returns why the call, or one of its reads, failed. It ignores reads that fail because of
// their key.
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

// note records the outcome of the call's attempts.
func (c *scriptCall) note(a *attempts) {
	err := c.err()
	if c.script != nil && a.mayHaveRun(c.cmd) || err != nil && mayHaveRun(err) {
		c.mayHaveRun = true
	}
	c.late = err != nil && a.isLate(append(c.reads, c.cmd, c.told)...)
}

// run sends the calls in one pipeline. Calls whose script the server doesn't have were not carried
// out: they are sent again with the script's text, which the server keeps for the next time. Where
// a key may have been read after the state of its partition, the state is read once more. Where the
// caller's change is not the last one any more, its sequence shows whether it is still there.
func run(ctx context.Context, client redis.UniversalClient, calls []*scriptCall) {
	ctx, seen := watchResends(ctx)
	pipe := client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe)
	}
	execute(ctx, pipe)
	pipe = client.Pipeline()
	resent, again := seen.resent(), 0
	for _, c := range calls {
		c.note(seen)
		switch err := c.err(); {
		case err == nil && c.script == nil && (resent || c.overtaken()):
			if resent {
				c.sendState(ctx, pipe)
			}
			if c.own {
				c.sendSequence(ctx, pipe)
			}
			again++
		case err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT"):
			c.sendText(ctx, pipe)
			again++
		}
	}
	if again > 0 {
		execute(ctx, pipe)
	}
	unanswered := false
	for _, c := range calls {
		c.note(seen)
		err := c.err()
		unanswered = unanswered || err != nil && !isRefusal(err)
	}
	if unanswered {
		relearn(ctx, client)
	}
}

// execute sends a pipeline, and leaves every command with an outcome. If a server refuses the
// connection itself, because of the password or the number of clients, the driver sets neither a
// reply nor an error on the commands. They get the error of the connection.
func execute(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil {
		return
	}
	for _, c := range cmds {
		if c, ok := c.(*redis.Cmd); ok && c.Err() == nil && c.Val() == nil {
			c.SetErr(err)
		}
	}
}

// relearn makes a cluster's client ask again which node serves which slots, after a node did not
// answer. By itself the client does so once a minute or when a node answers MOVED. A node that is
// gone answers nothing, and its replica may have taken over long ago.
func relearn(ctx context.Context, client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

// runOne makes Redis carry out a single call, and classifies its error.
func (s *Store) runOne(ctx context.Context, c *scriptCall) error {
	s.roundTrips.Add(1)
	run(ctx, s.client, []*scriptCall{c})
	if err := c.err(); err != nil {
		return c.classify(err)
	}
	return nil
}

// run makes Redis carry out calls in one pipeline, and records the time that takes.
func (s *Store) run(ctx context.Context, calls []*scriptCall) {
	s.roundTrips.Add(1)
	began := time.Now()
	run(ctx, s.client, calls)
	s.durations.Observe(time.Since(began))
}
