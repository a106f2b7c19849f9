package redisstore

import (
	"fmt"
	"slices"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/redisstore/internal/msgpack"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// How many numbers the script returns for each limit (count, width of the widest cut cell, and
// retry after) and for each cell (start, width and count).
const (
	valuesOfLimit = 3
	valuesOfCell  = 3
)

// plansSeen is how many of the latest plans are searched for an equal one. Callers have few rules,
// and mostly the same ones.
const plansSeen = 8

// directScript is one call of the script, for operations that are carried out together. Its memory
// is reused.
type directScript struct {
	calls []*directCall
	call  scripts.Call

	most     int           // steps
	left     []*directCall // the calls that were left for another script
	sender   string        // the key that its number is stored under
	store    *Store
	ladders  []*leaparray.Ladder
	plans    []directPlan
	versions map[int]int // by partition, the position of its version among the versions, from 1
	parts    []int       // the partitions in the order of their versions
	names    []byte      // the names of all keys but the first
	ends     []int       // where each name ends
	keys     []string    // parts of one string
	packed   []byte
	hashes   []byte // of the keys, for the lists of keys
	size     int    // how many numbers are packed
}

// directPlan holds the rules that some checks have in common.
type directPlan struct {
	ladder int             // from 1
	limits []twotier.Limit // as in directCall
}

func newDirectScript(s *Store, most int) *directScript {
	return &directScript{
		store: s, most: most, versions: map[int]int{},
		call: scripts.Call{Script: s.scripts.Direct, Text: s.scripts.DirectText},
	}
}

// startFor empties the script, for calls of a sender.
func (g *directScript) startFor(sender string) {
	g.calls, g.left, g.call.MayHaveRun = g.calls[:0], g.left[:0], false
	g.ladders, g.plans, g.parts = g.ladders[:0], g.plans[:0], g.parts[:0]
	g.names, g.ends, g.keys, g.packed, g.size = g.names[:0], g.ends[:0], g.keys[:0], g.packed[:0], 0
	g.hashes = g.hashes[:0]
	clear(g.versions)
	g.sender = sender
	// A cluster's client finds the server by the first key, and can't read a pointer to it.
	g.call.Line = append(g.call.Line[:0], nil, nil, 0, sender)
}

// encode builds the command for the calls.
func (g *directScript) encode(seq uint64) {
	checks, now := 0, int64(0)
	for _, c := range g.calls {
		checks, now = checks+len(c.checks), max(now, c.now)
		for i := range c.checks {
			c.checks[i].plan = g.planNumber(c.checks[i].ladder, c.limitsOf(i))
		}
	}
	for _, c := range g.calls {
		c.present = now
	}
	g.packed = msgpack.AppendHead(g.packed)
	g.pack(now, int64(g.most))
	g.packPlans()
	g.pack(int64(len(g.calls)))
	for _, c := range g.calls {
		g.pack(flagNumber(c.kind == twotier.Acquire), c.mode, c.ts,
			int64(len(c.checks)))
		g.names = append(g.names, c.names...)
		for i := range c.checks {
			check := &c.checks[i]
			g.hashes = layout.AppendHash(g.hashes, check.hash)
			g.ends = append(g.ends, len(g.names)-len(c.names)+check.end)
			g.pack(int64(1+checks+g.versionPosition(check.partition)), int64(check.plan), check.n,
				check.companion)
		}
	}
	msgpack.SetHead(g.packed, g.size)
	for _, partition := range g.parts {
		g.names = g.store.prefix.AppendStateKey(g.names, partition)
		g.ends = append(g.ends, len(g.names))
	}
	all, from := string(g.names), 0
	for _, end := range g.ends {
		g.keys = append(g.keys, all[from:end])
		from = end
	}
	line := g.call.Line
	for i := range g.keys {
		line = append(line, &g.keys[i])
	}
	line[2] = 1 + len(g.keys)
	g.call.Line = append(line, strconv.FormatUint(seq, 10), g.store.sequenceTTL, g.packed, g.hashes)
}

func (g *directScript) pack(numbers ...int64) {
	for _, n := range numbers {
		g.packed = msgpack.Append(g.packed, n)
	}
	g.size += len(numbers)
}

// planNumber returns the number of a plan, counted from 1 as in Lua.
func (g *directScript) planNumber(l *leaparray.Ladder, limits []twotier.Limit) int {
	for i := len(g.plans) - 1; i >= max(0, len(g.plans)-plansSeen); i-- {
		if p := &g.plans[i]; g.ladders[p.ladder-1] == l && slices.Equal(p.limits, limits) {
			return i + 1
		}
	}
	ladder := slices.Index(g.ladders, l) + 1
	if ladder == 0 {
		g.ladders = append(g.ladders, l)
		ladder = len(g.ladders)
	}
	g.plans = append(g.plans, directPlan{ladder, limits})
	return len(g.plans)
}

func (g *directScript) packPlans() {
	g.pack(int64(len(g.ladders)))
	for _, l := range g.ladders {
		g.pack(int64(l.Len()), int64(l.MaxCells()), int64(l.ExactEvents()), syncer.KeyTTL(l))
		for level := range l.Len() {
			g.pack(l.Width(level), int64(l.BucketsKept(level)))
		}
	}
	g.pack(int64(len(g.plans)))
	for _, p := range g.plans {
		g.pack(int64(p.ladder), int64(len(p.limits)))
		for _, limit := range p.limits {
			if limit.Period == nil {
				g.pack(limit.Window, limit.Bound())
				continue
			}
			_, end := limit.Period.Around(limit.Window)
			g.pack(limit.Window-end, limit.Bound(), limit.Window)
		}
	}
}

// addLimits adds the limits of a check. A period becomes the one around the operation's time.
func (c *directCall) addLimits(limits []twotier.Limit) {
	from := len(c.limits)
	c.limits = append(c.limits, limits...)
	for i := from; i < len(c.limits); i++ {
		if l := &c.limits[i]; l.Period != nil {
			l.Window, _ = l.Period.Around(c.ts)
		}
	}
}

// versionPosition returns the position of a partition's version among the versions, counted from 1
// as in Lua.
func (g *directScript) versionPosition(partition int) int {
	n, ok := g.versions[partition]
	if !ok {
		g.parts = append(g.parts, partition)
		n = len(g.parts)
		g.versions[partition] = n
	}
	return n
}

func flagNumber(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// decode gives every call its part of the reply without finishing any, and collects the calls that
// the script left.
func (g *directScript) decode(reply string) error {
	u := msgpack.Reader{Rest: reply}
	u.Array()
	repeated := u.Integer() == 1
	u.Integer() // the steps
	for _, c := range g.calls {
		c.repeated = repeated
		status := u.Integer()
		if c.allowed = status == 1; status == 2 {
			c.refusal = u.Text()
			continue
		}
		if status > 2 {
			c.divide = status == 4
			g.left = append(g.left, c)
			continue
		}
		for i := range c.checks {
			n := valuesOfLimit * len(c.limitsOf(i))
			if c.kind == twotier.Add {
				cells := u.Integer()
				u.Bad = u.Bad || cells < 0
				c.values = append(c.values, cells)
				n = int(valuesOfCell * cells)
			}
			for ; n > 0 && !u.Bad; n-- {
				c.values = append(c.values, u.Integer())
			}
		}
	}
	if u.Bad || u.Rest != "" {
		return fmt.Errorf("unexpected reply %q", reply)
	}
	return nil
}
