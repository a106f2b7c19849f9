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
	return &directScript{
		store: s, positions: map[int]int{},
		call: scripts.Call{Script: s.scripts.Commit, Text: s.scripts.CommitText},
	}
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
	line := append(g.call.Line[:0], nil, nil, 0, g.sender)
	size, keys := 0, 0
	for _, group := range g.groups {
		for _, k := range group.keys {
			line, keys = append(line, k.name), keys+1
			g.position(k.partition)
		}
	}
	b := msgpack.AppendHead(g.packed[:0])
	number := func(n int64) { b, size = msgpack.Append(b, n), size+1 }
	text := func(s string) { b, size = msgpack.AppendText(b, s), size+1 }
	list := func(n int, packed []byte) {
		if n == 0 {
			number(0)
			return
		}
		b, size = append(msgpack.AppendArray(b, n), packed...), size+1
	}
	text(g.version)
	text(claimant)
	number(g.store.longestTTL())
	number(int64(len(g.partitions)))
	for _, partition := range g.partitions {
		line = append(line, g.store.prefix.StateKey(partition))
		p := known[partition]
		text(p.epoch)
		text(p.quieted)
		number(p.others)
	}
	number(int64(len(g.groups)))
	for _, group := range g.groups {
		number(group.claims())
		number(int64(len(group.keys)))
		for _, k := range group.keys {
			number(int64(g.positions[k.partition]))
			text(k.expected())
			number(syncer.KeyTTL(k.ladder))
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
	line[2] = 1 + keys + len(g.partitions)
	g.call.Line = append(line, strconv.FormatUint(seq, 10), g.store.sequenceTTL, g.packed)
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
	refusal string    // in the server's words
	partly  bool      // refused after a part was changed
	keys    []content // as they are now, if they were not as expected
}

// content is the fields and values of a key, or why there are none.
type content struct {
	known bool
	flat  []string
	err   string
}

// decode decodes the reply: what is new of the partitions, and what has become of the groups. It
// also reports whether that was decided by an earlier attempt.
func (g *directScript) decode(reply string, learn func(partition int, p heldPartition)) (
	list []outcome, again bool, err error) {
	u := msgpack.Reader{Rest: reply}
	u.Array()
	again = u.Integer() == 1
	for _, partition := range g.partitions {
		if u.Integer() == 0 {
			continue
		}
		p := heldPartition{epoch: u.Text(), quieted: u.Text()}
		p.others, err = strconv.ParseInt(u.Text(), 10, 64)
		u.Bad = u.Bad || err != nil
		if !u.Bad {
			learn(partition, p)
		}
	}
	for _, group := range g.groups {
		var out outcome
		switch u.Integer() {
		case 1:
			out.changed = true
		case 2:
			out.refusal = u.Text()
		case 3:
			out.refusal, out.partly = u.Text(), true
		default:
			for range group.keys {
				out.keys = append(out.keys, decodeContent(&u))
			}
		}
		list = append(list, out)
	}
	if u.Bad || u.Rest != "" {
		return nil, false, fmt.Errorf("unexpected reply %q", reply)
	}
	return list, again, nil
}

func decodeContent(u *msgpack.Reader) (c content) {
	switch u.Peek() {
	case msgpack.Number:
		u.Integer()
	case msgpack.Text:
		c.err = u.Text()
	default:
		c.known = true
		for range u.Array() {
			c.flat = append(c.flat, u.Text())
		}
	}
	return c
}
