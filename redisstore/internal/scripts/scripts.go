package scripts

import (
	"context"
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// The ways to expire buckets: by the key's time to live, by one of each field, or by TairHash.
const (
	ExpireKeys     = "key"
	ExpireFields   = "field"
	ExpireTairhash = "tairhash"
)

// Set holds the scripts for one way of expiring buckets. The heads of the files describe them.
type Set struct {
	Round, Restore, Reset, Commit, Fields *redis.Script
}

// New returns the scripts for one way of expiring buckets. Those about counts begin with its code.
func New(expiry string) Set {
	counts := text("expiry_"+expiry, "cells", "epoch")
	rounds := counts + text("rounds")
	return Set{
		Round:   redis.NewScript(rounds + text("round")),
		Restore: redis.NewScript(rounds + text("restore")),
		Reset:   redis.NewScript(rounds + text("reset")),
		Commit:  redis.NewScript(counts + text("commit")),
		Fields:  redis.NewScript(text("fields")),
	}
}

func text(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		one, _ := files.ReadFile("lua/" + name + ".lua") // a missing one fails every test
		all.Write(one)
	}
	return all.String()
}

// Call is one call in a pipeline. Without a script, it carries out commands that read and, after
// them, reads the state of the partition. In this order, what they read is of no later epoch than
// the state, and contains no change that its version does not count.
type Call struct {
	// Script is the script, and Keys and Args are its keys and arguments.
	Script *redis.Script
	Keys   []string
	Args   []any
	// Commands are those of a call without a script.
	Commands [][]any
	// State is the key of the partition's state, for a call that only reads. It has the epoch,
	// version, quieted, last change, whether the list of keys is complete, and its last part.
	State string
	// Writer is the key of the sequence to read afterwards, or empty. LastChange is the last change
	// that the caller knows of, and Own marks it as the caller's: as long as nobody else has made a
	// change since, the sequence need not be read.
	Writer     string
	LastChange string
	Own        bool

	// Cmd is the script's reply, and Reads holds the replies of the reads. SequenceReply is nil if
	// the writer's sequence was not read.
	Cmd                       *redis.Cmd
	Reads                     []*redis.Cmd
	StateReply, SequenceReply *redis.Cmd
	// MayHaveRun is set by Run once an attempt before the last one may have been carried out, or
	// the last one failed and may have been: after that, an error leaves the outcome open. It stays
	// set if the call is run again.
	MayHaveRun bool
	// Late means that there is no answer yet, from a server that answers others.
	Late bool
}

func (c *Call) send(ctx context.Context, pipe redis.Pipeliner) {
	if c.Script != nil {
		c.Cmd = c.Script.EvalSha(ctx, pipe, c.Keys, c.Args...)
		return
	}
	for _, command := range c.Commands {
		c.Reads = append(c.Reads, pipe.Do(ctx, command...))
	}
	c.sendState(ctx, pipe)
}

// sendState adds commands to a pipeline that read the partition's state.
func (c *Call) sendState(ctx context.Context, pipe redis.Pipeliner) {
	c.StateReply = pipe.Do(ctx, "HMGET", c.State, "e", "v", "q", "l", "c", "k")
	if c.Writer != "" && !c.Own {
		c.sendSequence(ctx, pipe)
	}
}

// sendSequence adds a command to a pipeline that reads the sequence of the writer of the last
// change that the caller knows of.
func (c *Call) sendSequence(ctx context.Context, pipe redis.Pipeliner) {
	c.SequenceReply = pipe.Do(ctx, "GET", c.Writer)
}

// overtaken reports whether the last change is no longer the caller's own.
func (c *Call) overtaken() bool {
	if !c.Own {
		return false
	}
	state, _ := c.StateReply.Slice()
	return TextAt(state, 3) != c.LastChange
}

// Err returns why the call, or one of its reads, failed. It ignores reads that fail because of
// their key.
func (c *Call) Err() error {
	if c.Script != nil {
		return c.Cmd.Err()
	}
	for _, cmd := range c.Reads {
		if err := cmd.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
	}
	return c.StateReply.Err()
}

func (c *Call) record(a *attempts) {
	err := c.Err()
	if c.Script != nil && a.mayHaveRun(c.Cmd) || err != nil && mayHaveRun(err) {
		c.MayHaveRun = true
	}
	c.Late = err != nil && a.isLate(append(c.Reads, c.Cmd, c.StateReply)...)
}

// Run sends the calls in one pipeline. Calls whose script the server doesn't have were not carried
// out: they are sent again with the script's text, which the server keeps for the next time. Where
// a key may have been read after the state of its partition, the state is read once more. Where the
// caller's change is not the last one any more, its sequence shows whether it is still there.
func Run(ctx context.Context, client redis.UniversalClient, calls []*Call) {
	ctx, seen := watchResends(ctx)
	pipe := client.Pipeline()
	for _, c := range calls {
		c.send(ctx, pipe)
	}
	Execute(ctx, pipe)
	pipe = client.Pipeline()
	resent, again := seen.resent(), 0
	for _, c := range calls {
		c.record(seen)
		switch err := c.Err(); {
		case err == nil && c.Script == nil && (resent || c.overtaken()):
			if resent {
				c.sendState(ctx, pipe)
			}
			if c.Own {
				c.sendSequence(ctx, pipe)
			}
			again++
		case err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT"):
			c.Cmd = c.Script.Eval(ctx, pipe, c.Keys, c.Args...)
			again++
		}
	}
	if again > 0 {
		Execute(ctx, pipe)
	}
	unanswered := false
	for _, c := range calls {
		c.record(seen)
		err := c.Err()
		unanswered = unanswered || err != nil && !IsRefusal(err)
	}
	if unanswered {
		ReloadSlots(ctx, client)
	}
}

// Execute sends a pipeline, and leaves every command with an outcome. If a server refuses the
// connection itself, because of the password or the number of clients, the driver sets neither a
// reply nor an error on the commands. They get the error of the connection.
func Execute(ctx context.Context, pipe redis.Pipeliner) []redis.Cmder {
	cmds, err := pipe.Exec(ctx)
	for _, c := range cmds {
		if c, ok := c.(*redis.Cmd); ok && err != nil && c.Err() == nil && c.Val() == nil {
			c.SetErr(err)
		}
	}
	return cmds
}

// ReloadSlots makes a cluster's client ask again which node serves which slots, after a node did
// not answer. By itself the client does so once a minute or when a node answers MOVED. A node that
// is gone answers nothing, and its replica may have taken over long ago.
func ReloadSlots(ctx context.Context, client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}
