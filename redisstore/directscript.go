package redisstore

import (
	"fmt"
	"math/rand/v2"
	"strconv"

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
