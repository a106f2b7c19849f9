package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
)

// groups are acquires over keys that are used only once. Either all keys of a group are counted or
// none is, whatever the client's answer.
type groups struct {
	mu     sync.Mutex
	all    []group // by number
	kills  []time.Time
	graves []grave
	// excused are keys whose counts may be missing although others of the group are counted.
	excused map[string]bool
}

// grave is a killed process, and the partitions that it decided about or owned.
type grave struct {
	name string
	held map[int]bool
}

// group is the acquire of a group.
type group struct {
	asked       *proc
	begun, told time.Time // told is zero until the client has an answer
	// orphaned is set if the process that was asked, or the owner of a key, was killed.
	orphaned bool
	// owners are the owners of its keys in the view of the asked process at that time: one of them
	// may be about to decide about a key that it hands over meanwhile.
	owners [groupSize]string
}

// begin returns the number of a new group for which a process is asked. Its acquire may be sent to
// an owner that was killed and is not missed yet: it is unknown whether that one has decided.
func (g *groups) begin(p *proc) (number int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	number = int64(len(g.all) + 1)
	o := group{asked: p, begun: time.Now()}
	for k := range groupSize {
		key := string(groupKey(number, k))
		o.owners[k] = p.owner(key)
		if p.w.ownedByTheDead(g.graves, key) {
			g.excused[key], o.orphaned = true, true
		}
	}
	g.all = append(g.all, o)
	return number
}

// ownedByTheDead reports whether some living process considers one of these a member that owns a
// key.
func (w *world) ownedByTheDead(graves []grave, key string) bool {
	for _, g := range graves {
		for _, p := range w.living() {
			if p.ring.Table().Find(g.name) >= 0 &&
				(g.held[w.partition(key)] || p.owner(key) == g.name) {
				return true
			}
		}
	}
	return false
}

func (g *groups) end(number int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[number-1].told = time.Now()
}

// settling is how long it may take to determine the outcome of an acquire, once its client has been
// answered.
const settling = 15 * time.Second

// excuse excuses the keys that a killed process may have reserved, or may have been about to decide
// about: its part is lost, like everything that was only in its memory.
func (g *groups) excuse(p *proc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kills = append(g.kills, time.Now())
	g.graves = append(g.graves, grave{p.ring.Name(), p.held()})
	for i := range g.all {
		o := &g.all[i]
		if !o.told.IsZero() && time.Since(o.told) > settling {
			continue
		}
		o.orphaned = o.orphaned || o.asked == p
		for k := range groupSize {
			key := string(groupKey(int64(i+1), k))
			if o.owners[k] == p.ring.Self().Name || p.owner(key) == p.ring.Self().Name ||
				p.decides(key) {
				g.excused[key], o.orphaned = true, true
			}
		}
	}
}

// undecidable reports whether both the node that decided about a group and the one that ran its
// acquire may have died. Then the outcome is unknown, and each owner without a decision counts its
// part, as documented in package multiowner. One of them may have died before, and not been missed
// yet.
func (g *groups) undecidable(o *group) bool {
	if !o.orphaned {
		return false
	}
	dead, from, to := 0, o.begun.Add(-settling), o.told.Add(settling)
	for _, at := range g.kills {
		if at.After(from) && (o.told.IsZero() || at.Before(to)) {
			dead++
		}
	}
	return dead > 1
}

// owner returns the name of the member that owns a key in the view of a process, "" if none does.
func (p *proc) owner(key string) string {
	t := p.ring.Table()
	if at := t.Owner(p.w.partition(key)); at >= 0 {
		return t.Member(at).Name
	}
	return ""
}

// held returns the partitions that a process owns in its view, or decides about.
func (p *proc) held() map[int]bool {
	held, seen := map[int]bool{}, map[int]bool{}
	for i := 0; len(seen) < p.w.plan.partitions; i++ {
		key := fmt.Sprint("probe", i)
		if at := p.w.partition(key); !seen[at] {
			seen[at] = true
			held[at] = p.ring.Table().OwnedBySelf(at) || p.decides(key)
		}
	}
	return held
}

// decides reports whether a process decides about a key at this moment.
func (p *proc) decides(key string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{{Key: []byte(key),
		Limits: []twotier.Limit{{Window: dayMS}}}}}
	return !errors.Is(p.counter.Do(ctx, &op, new(twotier.Result)), twotier.ErrNotOwner)
}

// groupSize is the maximum number of keys in a group.
const groupSize = 4

// group acquires two to four keys that are used only once, one of which may be used up already.
// Every other group has a hash tag.
func (c *client) group(p *proc) {
	number := c.w.groups.begin(p)
	defer c.w.groups.end(number)
	op := twotier.Op{Kind: twotier.Acquire, Ack: c.ack()}
	for i := range 2 + c.rnd.IntN(groupSize-1) {
		op.Checks = append(op.Checks,
			twotier.Check{Key: groupKey(number, i), N: 1,
				Limits: []twotier.Limit{{Window: dayMS, Max: 1}}})
	}
	if c.rnd.IntN(4) == 0 {
		op.Checks[c.rnd.IntN(len(op.Checks))].Limits[0].Max = 0
	}
	c.do(p, op)
}

// burst makes clients acquire groups, so that the next event comes in the middle of them. The
// returned function waits for their answers.
func (w *world) burst() (wait func()) {
	var running sync.WaitGroup
	for i := range 10 {
		c := &client{w: w, number: 100 + i, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 1))}
		running.Go(func() {
			if p := w.pick(c.rnd); p != nil {
				c.group(p)
			}
		})
	}
	w.rest(15)
	return running.Wait
}

func groupKey(number int64, i int) []byte {
	if hasTag(number) {
		return fmt.Appendf(nil, "group{%d}.%d", number, i)
	}
	return fmt.Appendf(nil, "group%d.%d", number, i)
}

// hasTag reports whether a group has a hash tag, and so one owner.
func hasTag(number int64) bool { return number%2 == 1 }

// checkGroups checks that of each group all keys are counted or none is, except for keys whose
// counts may be lost and groups whose outcome is unknown. Owners that lose sight of each other are
// no excuse if the keys have one hash tag: then they have one owner.
func (w *world) checkGroups() {
	for i := range w.groups.all {
		if w.groups.undecidable(&w.groups.all[i]) ||
			!hasTag(int64(i+1)) && w.sight.outOfReach(&w.groups.all[i]) {
			continue
		}
		number := int64(i + 1)
		var counts []int64
		for k := range groupSize {
			key := string(groupKey(number, k))
			if w.ledger.has(key) && w.ledger.copy(key).lost == 0 && !w.groups.excused[key] {
				counts = append(counts, w.stored(key))
			}
		}
		if len(slices.Compact(slices.Clone(counts))) > 1 {
			w.t.Errorf("group%d: Redis has %v of what is all or nothing", number, counts)
			for k := range groupSize {
				w.t.Logf("%s", w.journal.about(string(groupKey(number, k))))
			}
			return
		}
	}
}
