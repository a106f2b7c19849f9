package syncer

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"twotier/internal/arena"
	"twotier/internal/table"
	"twotier/leaparray"
)

// space is a namespace as the partitions use it.
type space struct {
	name   string
	ladder *leaparray.Ladder
	onCold OnCold
	// maxKeys is how many keys may be in memory, 0 for any number; keys how many are.
	maxKeys int64
	keys    atomic.Int64
	aging   bool // the store deletes buckets by their age
	// ttl is the time to live of a key in the store in milliseconds: a little more than twice the longest span, so that
	// setting it along with the first count in a bucket of the coarsest level is enough.
	ttl int64
}

// partition holds the keys that hash to it, what of them the store has not acknowledged, and its dealings with the
// store.
type partition struct {
	id     int
	c      *Counter
	lane   *lane // flushes
	loader *lane // loads

	mu    sync.Mutex
	mode  mode
	table table.Table
	arena arena.Arena
	hand  int // where the search for something to evict goes on
	// sparedUntil is the second before which nothing is taken from the partition for others: it had nothing to give.
	sparedUntil uint32

	// The dirty list: keys with something to flush, oldest first. Every key that is put on it draws a ticket; all
	// tickets up to covered have been acknowledged.
	dirty        []arena.Ref
	firstDirty   int  // those before are off the list
	weighed      int  // how many of those on it were looked at for the largest
	flushDue     bool // by the clock, or because somebody waits; a load alone flushes nothing
	drawn, cut   uint64
	batches      []batch // of the tickets that are not covered yet, in order
	drawing      bool    // the last of them is being drawn
	parkedSince  time.Time
	adoptedSince time.Time
	covered      uint64
	adoptedKeys  int64        // in rounds of others that the store has not acknowledged
	accounted    atomic.Int64 // what the lane knows of what waits for the store
	shared       []sharedKey  // few
	parked       []arena.Ref
	parkedUntil  time.Time
	wants        map[string]*want // asked for, and not part of a round yet
	exact        bool             // some of them are to be loaded by a round that nothing overlaps
	load         *loading         // under way beside the flight
	era          uint64           // counted up when what is being loaded is void
	probe        bool             // the store is to be asked, even for nothing
	lossSeen     bool             // by a load; what was lost is found once more by a round that nothing overlaps
	unread       int              // loads in a row that failed
	loadAt       time.Time        // when the next may be tried
	loadBackoff  time.Duration
	dropped      [dropsKept]uint32 // which keys were dropped last, by their hashes
	drops        uint64
	settled      chan struct{} // closed when a round is settled; nil if nobody waits
	flight       *Round        // sent, or to be sent again unchanged
	queue        []*Round      // cut before, by whomever: they go before anything else is cut
	sealed       *sealed       // ready to be handed over
	seals        uint64        // how many times it was
	doubt        bool          // others may have sent what is in the queue
	adopted      map[string]uint64
	handedFrom   uint64 // tickets above this and up to handedTo were handed over before they were covered
	handedTo     uint64
	writer       string // whose rounds those are that are cut here
	tenure       int
	held         []held
	republish    *republish
	sent         bool // a round is with the store at this moment
	seq, acked   uint64
	mark         Mark // what the store acknowledged last, under whichever name
	heard             // what the store said last
	// read is what it said last when keys were loaded beside other rounds. Whether what it said is
	// news of others can't be told then, so heard stays behind; but what was loaded may be from all
	// that read counts, and is lost when the store has less.
	read               heard
	met                bool // it has said something
	suspect            bool // it is to say once more what it has, soon
	gen                uint32
	failing            bool
	contact, verified  time.Time // when the store last answered; when it last said what it has and what others did
	retryAt            time.Time
	backoff            time.Duration
	closed             bool        // nothing more is counted
	draining           bool        // nothing but what was promised is
	inLine             [lines]bool // guarded by the locks of the lanes
	pendingBuckets     int64
	expired, evictions int64
	touched            uint64
}

func (p *partition) find(hash uint32, ns, key []byte) arena.Ref {
	return p.table.Find(hash, func(r arena.Ref) bool { return p.entry(r).is(ns, key) })
}

// insert makes an entry for a key that has none. There must be room.
func (p *partition) insert(hash uint32, ns, key []byte, space, levels int) arena.Ref {
	r := p.arena.Alloc(entryWords(ns, key, levels))
	e := entry(p.arena.Tail(r))
	e.setName(ns, key, levels)
	e.setSpace(space)
	p.table.Insert(hash, r)
	p.c.spaces[space].keys.Add(1)
	return r
}

// drop takes an entry out of memory.
func (p *partition) drop(hash uint32, r arena.Ref) {
	p.dropped[p.drops%dropsKept] = hash
	p.drops++
	e := p.entry(r)
	p.c.spaces[e.space()].keys.Add(-1)
	releaseCounter(&p.arena, e.synced())
	releaseCounter(&p.arena, e.pending())
	p.table.Remove(hash, r)
	p.arena.Release(r, len(e))
}

// minUnlisted is how many places at the front of the dirty list may be unused in any case.
const minUnlisted = 16

// enlist puts an entry on the dirty list, unless it is there or parked.
func (p *partition) enlist(r arena.Ref, e entry) {
	if e.has(flagDirty | flagParked) {
		return
	}
	e.set(flagDirty)
	if p.firstDirty > len(p.dirty)/2 && p.firstDirty > minUnlisted {
		p.dirty = p.dirty[:copy(p.dirty, p.dirty[p.firstDirty:])]
		p.firstDirty = 0
	}
	p.dirty = append(p.dirty, r)
	p.draw()
}

func (p *partition) isDirty() bool { return p.firstDirty < len(p.dirty) }

// unlist takes the first entry off the dirty list.
func (p *partition) unlist() (arena.Ref, entry) {
	r := p.dirty[p.firstDirty]
	e := p.entry(r)
	if p.firstDirty++; p.firstDirty == len(p.dirty) {
		p.dirty, p.firstDirty = p.dirty[:0], 0
	}
	e.drop(flagDirty)
	p.cut++
	return r, e
}

// add counts n in the pending buckets of every level that still keeps the moment. If late is false the moment is so recent
// that all do. Taking back stops at zero in each bucket.
func (p *partition) add(r arena.Ref, e entry, l *leaparray.Ladder, s *leaparray.Stamp, n int64, late bool) {
	pending := p.pendingOf(e)
	for level := range l.Len() {
		d := n
		if late && s[level] < l.Head(p.syncedOf(e), level)-l.Keep(level) {
			continue
		}
		if n < 0 {
			d = -min(-n, max(0, leaparray.View{Ladder: l, A: p.syncedOf(e), B: pending}.Value(level, s[level])))
		}
		ch, ok := l.Add(pending, level, s[level], d)
		if !ok {
			pending = p.growPending(e, l, level, s[level], d)
			ch, _ = l.Add(pending, level, s[level], d)
		}
		p.pendingBuckets += int64(ch.Live)
		p.expired += int64(ch.Expired)
	}
	p.enlist(r, e)
}

// takeBack removes what was acknowledged from a pending bucket. If it left every window in the meantime it is gone already.
func (p *partition) takeBack(e entry, l *leaparray.Ladder, b *Bucket) {
	if e.hasPending() {
		p.addPending(e, l, int(b.Level), b.Index, -b.N)
	}
}

// addPending counts n in one pending bucket. One that lies behind the newest of its level by more than is kept is left alone.
func (p *partition) addPending(e entry, l *leaparray.Ladder, level int, idx, n int64) {
	pending := p.pendingOf(e)
	if e.hasPending() && idx < l.Head(pending, level)-l.Keep(level) {
		return
	}
	ch, ok := l.Add(pending, level, idx, n)
	if !ok {
		ch, _ = l.Add(p.growPending(e, l, level, idx, n), level, idx, n)
	}
	p.pendingBuckets += int64(ch.Live)
	p.expired += int64(ch.Expired)
}

func (p *partition) growPending(e entry, l *leaparray.Ladder, level int, idx, n int64) leaparray.Counter {
	to := counterAlloc{arena: &p.arena}
	c := l.Grow(p.pendingOf(e), &to, level, idx, n)
	p.dropPending(e)
	e.setPending(to.at)
	return c
}

// setSynced makes a bucket hold what the store holds. One that is zero may be the newest of its level, which says how far
// back that is complete.
func (p *partition) setSynced(e entry, l *leaparray.Ladder, level int, idx, n int64) {
	c := p.syncedOf(e)
	d := n - l.Sum(c, level, idx, idx)
	set := func() bool {
		if n == 0 && d == 0 {
			_, ok := l.Mark(c, level, idx)
			return ok
		}
		_, ok := l.Add(c, level, idx, d)
		return ok
	}
	if set() {
		return
	}
	to := counterAlloc{arena: &p.arena}
	old := e.synced()
	c = l.Grow(c, &to, level, idx, cmp.Or(d, 1))
	releaseCounter(&p.arena, old)
	e.setSynced(to.at)
	set()
}

// owes reports whether the newest bucket of a level is one that came to zero before the store heard of it. It is told all the
// same: what was dropped because of it must not seem never to have been there.
func (p *partition) owes(e entry, l *leaparray.Ladder, level int) (idx int64, ok bool) {
	pending := p.pendingOf(e)
	idx = l.Head(pending, level)
	return idx, idx > l.Head(p.syncedOf(e), level) && l.Sum(pending, level, idx, idx) == 0
}

// clearPending forgets what is pending of an entry.
func (p *partition) clearPending(e entry, l *leaparray.Ladder) {
	l.Each(p.pendingOf(e), func(int, int64, int64) bool {
		p.pendingBuckets--
		return true
	})
	p.dropPending(e)
}

// warm reports whether memory holds all that the store is known to hold of the key.
func (p *partition) warm(e entry) bool {
	return !e.has(flagCold) && e.gen() == p.gen&low24 && !p.doubt
}

func (p *partition) setWarm(e entry) {
	e.drop(flagCold)
	e.setGen(p.gen)
}

// wait returns a channel that is closed when the next round is settled.
func (p *partition) wait() <-chan struct{} {
	if p.settled == nil {
		p.settled = make(chan struct{})
	}
	return p.settled
}

func (p *partition) wake() {
	if p.settled != nil {
		close(p.settled)
		p.settled = nil
	}
}
