package simtest

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// drawLadders returns n ladders: each process counts by one of them, and its successor by any
// other.
func drawLadders(rnd *rand.Rand, n int) (list []*leaparray.Ladder) {
	for range n {
		list = append(list, drawLadder(rnd))
	}
	return list
}

// usual returns the default ladder, extended to the longest limit.
func usual() *leaparray.Ladder {
	levels := leaparray.DefaultLevels()
	levels[len(levels)-1].Count += 4
	l, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	if err != nil {
		panic(err) // it depends on nothing
	}
	return l
}

// drawLadder returns the usual ladder, or any other that covers the longest limit.
func drawLadder(rnd *rand.Rand) *leaparray.Ladder {
	if rnd.IntN(3) == 0 {
		return usual()
	}
	exact := leaparray.DefaultExact
	switch rnd.IntN(3) {
	case 0:
		exact = 0
	case 1:
		exact = 1 + rnd.IntN(leaparray.MaxExact)
	}
	for {
		if l, err := leaparray.NewLadder(exact, drawLevels(rnd)...); err == nil {
			return l
		}
	}
}

// longest is the span that a ladder must cover: the longest limit, in a window that ends before
// now.
const longest = dayMS + hourMS

// drawLevels returns random levels whose widths divide one another; the coarsest covers the longest
// window. They need not be acceptable as a ladder.
func drawLevels(rnd *rand.Rand) (levels []leaparray.Level) {
	width := between(rnd, 50, hourMS)
	for range 1 + rnd.IntN(leaparray.MaxLevels) {
		levels = append(levels, leaparray.Level{Width: time.Duration(width) * time.Millisecond,
			Count: int(between(rnd, 1, 400))})
		if width *= between(rnd, 2, 100); width > 12*hourMS {
			break
		}
	}
	last := &levels[len(levels)-1]
	last.Count = max(last.Count, int(longest*time.Millisecond/last.Width)+1)
	return levels
}

// between returns a random number, as often between 10 and 20 as between 1,000 and 2,000.
func between(rnd *rand.Rand, least, most float64) int64 {
	return int64(least * math.Pow(most/least, rnd.Float64()))
}

// ladderOf returns the ladder by which a process counts in a namespace.
func (p *proc) ladderOf(ns []byte) *leaparray.Ladder {
	if l := companionLadders[twotier.Companion(ns)]; l != nil {
		return l
	}
	return p.ladder
}

var companionLadders = syncer.CompanionLadders()

// windows are the windows that nodes are asked for at the end: the spans of a ladder's levels, and
// a day.
func (w *world) windows() (list []int64) {
	for _, level := range w.ladders[0].Levels() {
		if ms := level.Span().Milliseconds(); ms < dayMS {
			list = append(list, ms)
		}
	}
	return append(list, dayMS)
}

// load returns the buckets of a key in Redis, as a node with a ladder reads them at a moment.
func (w *world) load(l *leaparray.Ladder, ns, key []byte, at int64) leaparray.View {
	if twotier.Companion(ns) == "" {
		ns = nil // the default one
	}
	v := leaparray.View{Ladder: l, Now: at}
	if twotier.IsValues(ns) {
		return v
	}
	cells := cellsOf(w.redis.Get(w.placement().Of(ns, key), ns, key))
	for _, c := range leaparray.SettleNegatives(cells) {
		switch {
		case c.N > 0:
			v.Put(&v.A, leaparray.Heap{}, c.Stretch, c.N)
		case c.N == 0 && c.Width == l.Width(0):
			v.Mark(&v.A, leaparray.Heap{}, c.Stretch)
		}
	}
	return v
}

func cellsOf(buckets []syncer.Bucket) (cells []leaparray.Cell) {
	for _, b := range buckets {
		cells = append(cells, leaparray.Cell{Stretch: b.Stretch, N: b.N})
	}
	return cells
}

// moments is the time within which a node has answered, by its own clock.
type moments struct{ from, to time.Time }

// some reports whether a condition holds at one of these moments.
func (m moments) some(holds func(at int64) bool) bool {
	from, to := m.from.Add(-lateness).UnixMilli(), m.to.Add(lateness).UnixMilli()
	for at := from; at <= to; at++ {
		if holds(at) {
			return true
		}
	}
	return false
}

// knowsTime reports whether a process's clock is right, give or take half of lateness. A process
// that read a wrong time corrects itself with the next measurements.
func (p *proc) knowsTime() bool {
	off := time.Since(time.UnixMilli(p.clock.Now()))
	return off.Abs() < lateness/2
}

// checkAnswers compares every node's answers about a key, for windows of all levels, with the
// counts in Redis. A node may have folded buckets that Redis has not, and the other way round, but
// the truth is within the bounds of both. For a day both have the same count.
func (w *world) checkAnswers(key string, nodes map[*proc]answers) {
	if strings.HasPrefix(key, "group") {
		return // there are many of these keys, each used once
	}
	if p := w.alive()[len(key)%len(w.alive())]; !strings.HasPrefix(key, "once") {
		w.checkSeries(key, p)
	}
	for p, said := range nodes {
		a := said[key]
		if a.err != nil {
			w.t.Errorf("%s: node %s says %v", key, p.id, a.err)
			continue
		}
		v := w.load(p.ladder, nil, []byte(key), a.within.to.UnixMilli())
		for i, window := range w.windows() {
			said := a.counts[i]
			if !a.within.some(func(at int64) bool {
				v.Now = at
				e, ok := v.Count(window, at, true)
				return ok && e.Lo <= said.hi && said.lo <= e.Hi &&
					(window < dayMS || e.Hi == said.hi)
			}) {
				w.t.Errorf("%s: node %s says %+v for %d ms by %v, Redis has %d in all", key, p.id,
					said, window, p.ladder, w.stored(key))
			}
		}
	}
}

// checkSeries compares a node's series of a key with the buckets in Redis.
func (w *world) checkSeries(key string, p *proc) {
	from := time.Now()
	n, err := p.sum(key)
	v := w.load(p.ladder, nil, []byte(key), from.UnixMilli())
	if err == nil && (moments{from, time.Now()}).some(func(at int64) bool {
		sum := int64(0)
		v.Now = at
		v.Series(hourMS, at, func(_, n int64) { sum += n })
		return sum == n
	}) {
		return
	}
	w.t.Errorf("%s: node %s has a series of %d (%v), Redis %d", key, p.id, n, err, w.stored(key))
}

// checkCells checks that Redis has no more cells of a key than the ladders of all nodes may have,
// that each lies where a ladder has one, and that no more was taken back than there was, unless
// Redis has lost data or a node did not see everything.
func (w *world) checkCells(key string) {
	cells := cellsOf(w.redis.Get(w.partition(key), nil, []byte(key)))
	most := 0
	for _, l := range w.ladders {
		most += l.MaxCells()
	}
	if len(cells) > most {
		w.t.Errorf("%s: Redis has %d cells, want at most %d", key, len(cells), most)
	}
	for _, c := range leaparray.SettleNegatives(cells) {
		if c.Width < 1 || c.Start%c.Width != 0 || c.N < 0 && w.plan.exact && !w.plan.kind.loses() {
			w.t.Errorf("%s: Redis has a cell %+v", key, c)
		}
	}
}

// sumOf returns the sum of a key's buckets.
func sumOf(buckets []syncer.Bucket) (n int64) {
	for _, b := range buckets {
		n += b.N
	}
	return n
}
