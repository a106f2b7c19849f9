package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/redisstore/internal/fences"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/msgpack"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// directScript is one call of commit.lua, for groups that are carried out together. Its memory is
// reused.
type directScript struct {
	call    scripts.Call
	groups  []*directGroup
	sender  string // the key that its number is stored under
	store   *Store
	version string // that all changed keys get

	partitions []int
	positions  map[int]int // of a partition among them, from 1
	packed     []byte
	writer     cellWriter
	sets, gone []byte // of a key, in MessagePack
	folds      int    // how many cells of its keys fold
}

func newDirectScript(s *Store) *directScript {
	return &directScript{store: s, positions: map[int]int{},
		call: scripts.Call{Script: s.scripts.Commit}}
}

// startFor empties the script, for groups of a sender.
func (g *directScript) startFor(sender string) {
	g.groups, g.partitions, g.packed = g.groups[:0], g.partitions[:0], g.packed[:0]
	g.call.MayHaveRun, g.folds = false, 0
	clear(g.positions)
	g.sender = sender
}

// position returns the position of a partition among those of the script, from 1.
func (g *directScript) position(partition int) int {
	n, ok := g.positions[partition]
	if !ok {
		g.partitions = append(g.partitions, partition)
		n = len(g.partitions)
		g.positions[partition] = n
	}
	return n
}

// encode builds the command for the groups.
func (g *directScript) encode(seq uint64, claimant string, known map[int]*heldPartition,
	now int64) {
	g.version = strconv.FormatUint(rand.Uint64()>>16, 36)
	keys, size := append(g.call.Keys[:0], g.sender), 0
	for _, group := range g.groups {
		for _, k := range group.keys {
			keys = append(keys, k.name)
			g.position(k.partition)
		}
	}
	b := msgpack.AppendHead(g.packed[:0])
	integer := func(n int64) { b, size = msgpack.Append(b, n), size+1 }
	text := func(s string) { b, size = msgpack.AppendText(b, s), size+1 }
	list := func(n int, packed []byte) {
		if n == 0 {
			integer(0)
			return
		}
		b, size = append(msgpack.AppendArray(b, n), packed...), size+1
	}
	text(g.version)
	text(claimant)
	integer(g.store.longestTTL())
	integer(int64(len(g.partitions)))
	for _, partition := range g.partitions {
		keys = append(keys, g.store.prefix.StateKey(partition))
		p := known[partition]
		text(p.epoch)
		text(p.quieted)
		integer(p.others)
	}
	integer(int64(len(g.groups)))
	for _, group := range g.groups {
		integer(group.claims())
		integer(int64(len(group.keys)))
		for _, k := range group.keys {
			integer(int64(g.positions[k.partition]))
			text(k.expected())
			integer(syncer.KeyTTL(k.ladder))
			sets, gone := g.encodeChanges(k, now)
			hash := ""
			if k.changed && k.extends {
				var list [layout.HashBytes]byte
				hash = string(layout.AppendHash(list[:0], k.hash))
			}
			text(hash)
			list(sets, g.sets)
			list(gone, g.gone)
			group.writes = group.writes || sets+gone > 0 || k.claimed()
		}
	}
	msgpack.SetHead(b, size)
	g.packed = b
	g.call.Keys = keys
	g.call.Args = append(g.call.Args[:0], number(seq), g.store.sequenceTTL, g.packed)
}

// encodeChanges encodes the changes of a key. It returns the lengths of both lists.
func (g *directScript) encodeChanges(k *heldKey, now int64) (sets, gone int) {
	g.sets, g.gone = g.sets[:0], g.gone[:0]
	if !k.changed {
		return 0, 0
	}
	set := func(name, value string) {
		g.sets = msgpack.AppendText(msgpack.AppendText(g.sets, name), value)
		sets += 2
	}
	remove := func(name string) {
		g.gone = msgpack.AppendText(g.gone, name)
		gone++
	}
	if k.values.most > 0 {
		k.writeValues(now, set, remove)
	} else {
		if g.folds < maxFolds {
			g.folds += k.foldGrown(now)
		}
		g.writer.write(k, set, remove)
	}
	k.changed = sets+gone > 0 // what was counted may have been taken back
	return sets, gone
}

// outcome is what has become of a group.
type outcome struct {
	changed bool
	refusal string // in the server's words
	partly  bool   // refused after a part was changed
	keys    []any  // as they are now, if they were not as expected
}

// decode decodes the reply: what is new of the partitions, and what has become of the groups. It
// also reports whether that was decided by an earlier attempt.
func (g *directScript) decode(reply []any, learn func(partition int, p heldPartition)) (
	list []outcome, again bool, err error) {
	rest := reply
	next := func() (v any) {
		if len(rest) > 0 {
			v, rest = rest[0], rest[1:]
		}
		return v
	}
	again = next() == any(int64(1))
	for _, partition := range g.partitions {
		if state, ok := next().([]any); ok {
			learn(partition, parsePartition(state))
		}
	}
	marks, _ := next().(string)
	if len(marks) != len(g.groups) {
		return nil, false, fmt.Errorf("unexpected reply %q", reply)
	}
	for i, group := range g.groups {
		out := outcome{changed: marks[i] == '1', partly: marks[i] == '3'}
		switch marks[i] {
		case '0':
			for range group.keys {
				out.keys = append(out.keys, next())
			}
		case '2', '3':
			out.refusal = fmt.Sprint(next())
		}
		list = append(list, out)
	}
	return list, again, nil
}

// groupIntoScripts has Redis carry out groups: in one script call, or one per partition in a
// cluster.
func (w *directWorker) groupIntoScripts(groups []*directGroup, now int64) []*directScript {
	w.seq++
	used := 0
	next := func(sender string) *directScript {
		if used == len(w.scripts) {
			w.scripts = append(w.scripts, newDirectScript(w.d.opt.Store))
		}
		s := w.scripts[used]
		used++
		s.startFor(sender)
		return s
	}
	if !w.d.opt.Store.conn.Cluster {
		s := next(w.sender)
		s.groups = append(s.groups, groups...)
	} else {
		of := map[int]*directScript{}
		for _, g := range groups {
			partition := g.first.partition()
			s := of[partition]
			if s == nil {
				s = next(w.d.opt.Store.prefix.WriterKey(partition, w.name()))
				of[partition] = s
			}
			s.groups = append(s.groups, g)
		}
	}
	for _, s := range w.scripts[:used] {
		s.encode(w.seq, w.claimant, w.partitions, now)
	}
	return w.scripts[:used]
}

// sendScripts sends scripts until each is answered or time is up. A script without an answer is
// sent again unchanged under the same sequence: if it was applied, Redis only returns its
// decisions.
func (w *directWorker) sendScripts(ctx context.Context, open []*directScript,
	now int64) {
	s := w.d.opt.Store
	began := time.Now()
	var send []*scripts.Call
	open = slices.Clone(open)
	for gap := directMinGap; ; gap = min(2*gap, directMaxGap) {
		send = send[:0]
		for _, g := range open {
			send = append(send, &g.call)
		}
		s.runPipeline(ctx, send)
		left := open[:0]
		for _, g := range open {
			if err := g.call.Cmd.Err(); err != nil {
				if ctx.Err() == nil && w.shouldResend(g.call.MayHaveRun, err, time.Since(began)) {
					left = append(left, g)
					continue
				}
			}
			w.deliver(g, now)
		}
		if open = left; len(open) == 0 {
			return
		}
		if !retry.Pause(ctx, gap) {
			for _, g := range open {
				w.deliver(g, now)
			}
			return
		}
	}
}

// shouldResend decides whether a failed script is sent again. A script that was certainly not
// applied is given up soon, because no outcome is in doubt. In a cluster it is not, because a slot
// that moves or a replica that takes over may need the time.
func (w *directWorker) shouldResend(mayHaveRun bool, err error, spent time.Duration) bool {
	if scripts.IsRefusal(err) && !scripts.IsTransient(err) {
		return false
	}
	return mayHaveRun || w.d.opt.Store.conn.Cluster || spent < w.d.opt.Timeout/4
}

// deliver hands every call of a script its answer, or the error that they all share. Calls of
// groups whose keys were not as expected have no answer yet.
func (w *directWorker) deliver(g *directScript, now int64) {
	s := w.d.opt.Store
	reply, err := g.call.Cmd.Slice()
	var list []outcome
	again := false
	if err == nil {
		list, again, err = g.decode(reply, w.learn)
	}
	if err != nil {
		s.setFailedUnlessReply(err)
		if err = g.call.Classify(err); errors.Is(err, syncer.ErrNotApplied) {
			err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
		}
		for _, group := range g.groups {
			w.fail(group, err)
		}
		return
	}
	s.conn.SetFailed(nil)
	for i, group := range g.groups {
		switch out := &list[i]; {
		case out.changed:
			w.settle(group, g, again)
		case out.refusal != "":
			reason := twotier.ErrUnavailable
			if out.partly {
				reason = twotier.ErrUnknownOutcome
			}
			w.fail(group, fmt.Errorf("%w: Redis refuses this key: %s", reason, out.refusal))
		default:
			group.stale = true
			for j, k := range group.keys {
				w.replace(k, out.keys[j], now)
			}
		}
	}
}

// settle finishes the calls of a group that was carried out.
func (w *directWorker) settle(group *directGroup, g *directScript, again bool) {
	for _, k := range group.keys {
		if k.guessed {
			w.guesses.learn(false)
		}
		k.settle(g.version)
		if k.generation = w.partitions[k.partition].generation; again {
			k.generation = 0 // others may have changed it since
		}
		w.held.account(k)
	}
	for c := range group.calls {
		if group.writes { // otherwise the script did not store its number
			c.mark = fences.Mark{Key: g.sender, Seq: w.seq}
		}
		c.Finish(nil)
	}
}

// fail finishes the calls of a group with an error. Nothing is known of its keys any more.
func (w *directWorker) fail(group *directGroup, err error) {
	for _, k := range group.keys {
		k.group = nil
		w.held.remove(k)
	}
	for c := range group.calls {
		c.Finish(err)
	}
}

// replace replaces what the worker holds of a key by what the reply has of it.
func (w *directWorker) replace(k *heldKey, reply any, now int64) {
	k.group, k.generation, k.changed = nil, 0, false
	switch reply := reply.(type) {
	case string:
		k.err = fmt.Errorf("%w: Redis refuses this key: %s", twotier.ErrUnavailable, reply)
		k.generation = w.partitions[k.partition].generation
	case []any:
		if k.guessed {
			w.guesses.learn(len(reply) > 0)
		}
		k.load(w.flatten(reply), now)
		k.generation = w.partitions[k.partition].generation
	}
	w.held.account(k)
}

// setFailedUnlessReply takes an error as a sign that Redis is down, unless Redis reports it about a
// single key.
func (s *Store) setFailedUnlessReply(err error) {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.conn.SetFailed(err)
	}
}
