package simtest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// defaultLadder is the ladder of a world without faults, and of every other schedule.
func defaultLadder() *leaparray.Ladder {
	l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		panic(err)
	}
	return l
}

// drawLadder returns the default ladder, or any other that covers the longest limit.
func drawLadder(rnd *rand.Rand) *leaparray.Ladder {
	if rnd.IntN(2) == 0 {
		return defaultLadder()
	}
	for {
		if l, err := leaparray.NewLadder(drawLevels(rnd)...); err == nil {
			return l
		}
	}
}

// longest is what a ladder has to cover: the longest limit, in a window that ends before now.
const longest = dayMS + hourMS

// drawLevels returns random levels, of which the coarsest covers the longest window. They need not
// be acceptable as a ladder.
func drawLevels(rnd *rand.Rand) (levels []leaparray.Level) {
	for range 1 + rnd.IntN(leaparray.MaxLevels) {
		width := time.Duration(between(rnd, 10, dayMS)) * time.Millisecond
		levels = append(levels, leaparray.Level{Width: width, Count: int(between(rnd, 1, 400))})
	}
	slices.SortFunc(levels, func(a, b leaparray.Level) int { return cmp.Compare(a.Width, b.Width) })
	last := &levels[len(levels)-1]
	last.Count = max(last.Count, int(longest*time.Millisecond/last.Width)+1)
	return levels
}

// between returns a random number, as often between 10 and 20 as between 1,000 and 2,000.
func between(rnd *rand.Rand, least, most float64) int64 {
	return int64(least * math.Pow(most/least, rnd.Float64()))
}

// ladderOf returns the ladder of a namespace.
func (w *world) ladderOf(ns []byte) *leaparray.Ladder {
	if syncer.IsBan(ns) {
		return banLadder
	}
	return w.ladder
}

var banLadder = syncer.BanLadder()

// coarsest is the level that has everything that is counted in a schedule.
func (w *world) coarsest() uint8 { return uint8(w.ladder.Len() - 1) }

// windows are what nodes are asked for at the end: what each level covers.
func (w *world) windows() (list []int64) {
	for _, level := range w.ladder.Levels() {
		list = append(list, level.Span().Milliseconds())
	}
	return list
}

// load returns what Redis has of a key. A bucket from which more was taken back than it had counts
// as zero. A zero may be the newest bucket of its level, which says how far back the level is
// complete.
func (w *world) load(ns, key []byte) (counter leaparray.Counter) {
	l := w.ladderOf(ns)
	if !syncer.IsBan(ns) {
		ns = nil // the default one
	}
	for _, b := range w.redis.Get(w.placement().Of(ns, key), ns, key) {
		level, n := int(b.Level), max(0, b.N)
		set := func() bool {
			_, marked := l.Mark(counter, level, b.Index)
			_, added := l.Add(counter, level, b.Index, n)
			return marked && added
		}
		if !set() {
			counter = l.Grow(counter, leaparray.Heap{}, level, b.Index, max(1, n))
			set()
		}
	}
	return counter
}

// view is how a counter that consists of what Redis has is read at a moment.
func (w *world) view(counter leaparray.Counter, at int64) leaparray.View {
	return w.viewOf(nil, counter, at)
}

// viewOf is view for a key of some namespace.
func (w *world) viewOf(ns []byte, counter leaparray.Counter, at int64) leaparray.View {
	v := leaparray.View{Ladder: w.ladderOf(ns), A: counter}
	if w.plan.aging {
		v.Now = at
	}
	return v
}

// moments is the time within which a node has answered, by its own clock.
type moments struct{ from, to time.Time }

// mayTell reports whether said is what a node should say at one of these moments, by a function
// that says what it is at one.
func (m moments) mayTell(said int64, of func(at int64) int64) bool {
	from, to := m.from.Add(-lateness).UnixMilli(), m.to.Add(lateness).UnixMilli()
	for at := from; at <= to; at++ {
		if of(at) == said {
			return true
		}
	}
	return false
}

// knowsTime reports whether a process's clock is right, give or take half of lateness. One that
// heard a wrong time corrects itself with the next measurements.
func (p *proc) knowsTime() bool {
	off := time.Since(time.UnixMilli(p.clock.Now()))
	return off.Abs() < lateness/2
}

// checkAnswers compares every node's answers about a key, for windows of all levels, with what
// Redis has.
func (w *world) checkAnswers(key string, nodes map[*proc]answers) {
	if strings.HasPrefix(key, "group") {
		return // there are many of these keys, each used once
	}
	counter := w.load(nil, []byte(key))
	if p := w.alive()[len(key)%len(w.alive())]; !strings.HasPrefix(key, "once") {
		w.checkSeries(key, p, counter)
	}
	for p, said := range nodes {
		a := said[key]
		if a.err != nil {
			w.t.Errorf("%s: node %s says %v", key, p.id, a.err)
			continue
		}
		for i, window := range w.windows() {
			if !a.within.mayTell(a.counts[i], func(at int64) int64 {
				e, _ := w.view(counter, at).Count(window, at, true)
				return e.Hi
			}) {
				w.t.Errorf("%s: node %s says %d for %d ms, Redis has %d in all", key, p.id,
					a.counts[i], window, w.stored(key))
			}
		}
	}
}

// checkSeries compares a node's series of a key with what Redis has.
func (w *world) checkSeries(key string, p *proc, counter leaparray.Counter) {
	from := time.Now()
	n, err := p.sum(key)
	if err == nil && (moments{from, time.Now()}).mayTell(n, func(at int64) (sum int64) {
		w.view(counter, at).Series(hourMS, at, func(_, n int64) { sum += n })
		return sum
	}) {
		return
	}
	w.t.Errorf("%s: node %s has a series of %d (%v), Redis %d", key, p.id, n, err, w.stored(key))
}

// sumOf returns the sum of a key's buckets, taken from those of the coarsest level.
func (w *world) sumOf(buckets []syncer.Bucket) (n int64) {
	for _, b := range buckets {
		if b.Level == w.coarsest() {
			n += b.N
		}
	}
	return n
}

// TestLaddersCoverTheLongestLimit draws ladders: all accept the limits of schedules, and there are
// some with any number of levels.
func TestLaddersCoverTheLongestLimit(t *testing.T) {
	rnd, levels := rand.New(rand.NewPCG(1, 1)), map[int]int{}
	for range 200 {
		l := drawLadder(rnd)
		levels[l.Len()]++
		if l.Len() != len(leaparray.DefaultLevels()) && l.Span() < longest {
			t.Errorf("%v covers %d ms", l.Levels(), l.Span())
		}
	}
	for n := 1; n <= 5; n++ {
		if levels[n] == 0 {
			t.Errorf("no ladder has %d levels: %v", n, levels)
		}
	}
}
