package leaparray

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limits of a ladder.
const (
	// MaxLevels is the largest number of levels.
	MaxLevels = 6
	// MaxBuckets is the largest number of buckets in a level.
	MaxBuckets = 4096
	// MaxTotal is the largest number of buckets in all levels together.
	MaxTotal = 14_400
	// MaxExact is the largest number of events that keep their millisecond.
	MaxExact = 256
	// MinWidth is the smallest width of a bucket.
	MinWidth = 50 * time.Millisecond
	// MaxAhead is how far ahead of the present an event may lie.
	MaxAhead = 2 * time.Second
)

// slack is how many buckets a level may have beyond its span before they must fold, so that many
// fold at a time.
const slack = 32

// mostInBuckets is how many cells of a millisecond two buckets of the finest level may have: the
// one with the oldest exact event, and the one of the present.
const mostInBuckets = 2000

// maxSpan is the longest span of a level.
const maxSpan = 10 * 366 * 24 * time.Hour

// ErrLadder is wrapped by every error about the shape of a ladder.
var ErrLadder = errors.New("invalid ladder")

// Level is a number of buckets of one width.
type Level struct {
	// Width is the length of a bucket: whole milliseconds, at least MinWidth.
	Width time.Duration
	// Count is the number of buckets, 1 to MaxBuckets. Events up to Width x Count old are counted
	// in them.
	Count int
}

// Span is the greatest age of an event that the level counts.
func (l Level) Span() time.Duration { return l.Width * time.Duration(l.Count) }

// Ladder is an immutable list of levels, finest first, and the number of events that keep their
// millisecond.
type Ladder struct {
	levels []Level
	exact  int64
	width  [kinds]int64  // milliseconds, of each kind of cell
	perMS  [kinds]uint64 // 2^64 / width
	count  [kinds]int64
	slots  [kinds]int // of a ring
	most   int        // sparse cells in a counter before some have to fold
	span   int64      // milliseconds
	// start[mask][level] is where the ring of a level begins in a counter whose dense levels are
	// mask; start[mask][MaxLevels] is where the sparse cells begin.
	start [1 << MaxLevels][kinds]uint16
	// blurred is the same ladder with no exact events.
	blurred *Ladder
}

// DefaultLevels returns 100 ms, 1 s, 10 s, 1 m and 15 m buckets that cover 25 hours, which a day
// has when clocks are set back. Each level covers at least ten times the width of the next one, so
// no window from a second to a day loses more than a tenth of its length, plus the bucket of the
// present, to the bucket at its start.
func DefaultLevels() []Level {
	return []Level{{100 * time.Millisecond, 100}, {time.Second, 100}, {10 * time.Second, 60},
		{time.Minute, 150}, {15 * time.Minute, 100}}
}

// DefaultExact is how many events keep their millisecond by default.
const DefaultExact = 64

// Default returns the ladder of DefaultLevels and DefaultExact.
func Default() *Ladder {
	l, err := NewLadder(DefaultExact, DefaultLevels()...)
	if err != nil {
		panic(err) // it depends on nothing
	}
	return l
}

// NewLadder checks the levels and returns their ladder. Widths and spans must grow from level to
// level, and each width must divide the next. The newest exact events keep their millisecond; 0
// turns that off. The error wraps ErrLadder and names the level.
func NewLadder(exact int, levels ...Level) (*Ladder, error) {
	if len(levels) == 0 || len(levels) > MaxLevels {
		return nil, fmt.Errorf("%w: %d levels, want 1 to %d", ErrLadder, len(levels), MaxLevels)
	}
	if exact < 0 || exact > MaxExact {
		return nil, fmt.Errorf("%w: %d exact events, want 0 to %d", ErrLadder, exact, MaxExact)
	}
	l := &Ladder{levels: append([]Level(nil), levels...), exact: int64(exact)}
	l.width[moment] = 1
	l.most = 2*exact + slack
	total := 0
	for i, lv := range levels {
		if err := checkLevel(levels, i); err != nil {
			return nil, err
		}
		l.width[i] = lv.Width.Milliseconds()
		l.perMS[i] = math.MaxUint64 / uint64(l.width[i])
		l.count[i] = int64(lv.Count)
		if i == len(levels)-1 { // for the longest window that ends as long ago as an event may be
			l.count[i] *= 2
		}
		l.slots[i] = int(l.count[i]) + bucketsAhead(lv.Width) + slack + 2
		if i+1 < len(levels) {
			l.slots[i] += int(levels[i+1].Width / lv.Width)
		}
		l.most += max(leastCrowded, int(l.count[i])/2)
		total += lv.Count
	}
	l.most += int(min(2*levels[0].Width.Milliseconds(), mostInBuckets))
	if total > MaxTotal {
		return nil, fmt.Errorf("%w: %d buckets in all levels, want at most %d", ErrLadder, total,
			MaxTotal)
	}
	l.most = min(l.most, lenMask-1) // a mark may follow
	l.span = levels[len(levels)-1].Span().Milliseconds()
	l.layOut()
	blurred := *l
	l.blurred, blurred.exact = &blurred, 0
	return l, nil
}

// bucketsAhead returns how many buckets may lie ahead of the present one, with a mark behind them.
func bucketsAhead(width time.Duration) int { return int((MaxAhead+width-1)/width) + 1 }

func checkLevel(levels []Level, i int) error {
	lv := levels[i]
	switch {
	case lv.Width < MinWidth || lv.Width%time.Millisecond != 0:
		return fmt.Errorf("%w: level %d: width %v, want whole milliseconds, at least %v", ErrLadder,
			i, lv.Width, MinWidth)
	case lv.Count < 1 || lv.Count > MaxBuckets:
		return fmt.Errorf("%w: level %d: %d buckets, want 1 to %d", ErrLadder, i, lv.Count,
			MaxBuckets)
	case lv.Width > 366*24*time.Hour || lv.Span() > maxSpan:
		return fmt.Errorf("%w: level %d: covers %v, want at most ten years", ErrLadder, i,
			lv.Span())
	case i == 0:
		return nil
	}
	finer := levels[i-1]
	switch {
	case lv.Width <= finer.Width:
		return fmt.Errorf("%w: level %d: width %v, want more than the finer level's %v", ErrLadder,
			i, lv.Width, finer.Width)
	case lv.Width%finer.Width != 0:
		below := lv.Width / finer.Width * finer.Width
		above := below + finer.Width
		if below == finer.Width {
			return fmt.Errorf("%w: level %d: width %v is no multiple of the finer level's %v; "+
				"%v is", ErrLadder, i, lv.Width, finer.Width, above)
		}
		return fmt.Errorf("%w: level %d: width %v is no multiple of the finer level's %v; "+
			"%v and %v are", ErrLadder, i, lv.Width, finer.Width, below, above)
	case lv.Span() <= finer.Span():
		return fmt.Errorf("%w: level %d: covers %v, want more than the finer level's %v", ErrLadder,
			i, lv.Span(), finer.Span())
	}
	return nil
}

func (l *Ladder) layOut() {
	for mask := range 1 << len(l.levels) {
		at := head
		for i := range l.levels {
			l.start[mask][i] = uint16(at)
			if mask&(1<<i) != 0 {
				at += ringHead + l.slots[i]
			}
		}
		l.start[mask][MaxLevels] = uint16(at)
	}
}

// Levels returns a copy of the levels.
func (l *Ladder) Levels() []Level { return append([]Level(nil), l.levels...) }

// Len is the number of levels.
func (l *Ladder) Len() int { return len(l.levels) }

// Width is the width of a level's buckets in milliseconds.
func (l *Ladder) Width(level int) int64 { return l.width[level] }

// CoarsestWidth is the width of the buckets of the last level in milliseconds.
func (l *Ladder) CoarsestWidth() int64 { return l.width[len(l.levels)-1] }

// FineSpan is the greatest age of an event that the finest level counts, in milliseconds.
func (l *Ladder) FineSpan() int64 { return l.levels[0].Span().Milliseconds() }

// MaxCells is the largest number of cells of a key that has folded, if all of them are of this
// ladder.
func (l *Ladder) MaxCells() (n int) {
	for i := range l.levels {
		n += l.slots[i]
	}
	return n + 2*int(l.exact)
}

// MaxWords is the length of a block in which every level is a ring, with as many other cells as
// allowed.
func (l *Ladder) MaxWords() int {
	return int(l.start[1<<len(l.levels)-1][MaxLevels]) + l.most
}

// Blurred returns the ladder of keys that no limit needs to be exact: no event keeps its
// millisecond.
func (l *Ladder) Blurred() *Ladder { return l.blurred }

// Needs reports whether events have to keep their millisecond for a limit to be decided exactly. A
// larger limit than ExactEvents is not.
func (l *Ladder) Needs(limit int64) bool { return limit > 0 && limit <= l.exact }

// ExactEvents is how many events keep their millisecond.
func (l *Ladder) ExactEvents() int { return int(l.exact) }

// Span is the longest window that the ladder covers, in milliseconds.
func (l *Ladder) Span() int64 { return l.span }

// index returns the bucket of a level that contains a moment. The quotient is rounded down, so the
// result may be negative, as for the start of a window.
//
// A 64-bit division would cost more than the rest of an add. The product with the reciprocal is off
// by at most one, which the remainder shows. The product of a negative number is too large by 2^64
// reciprocals.
func (l *Ladder) index(level int, ms int64) int64 {
	width, perMS := l.width[level], l.perMS[level]
	hi, _ := bits.Mul64(uint64(ms), perMS)
	i := int64(hi - perMS&uint64(ms>>63))
	if r := ms - i*width; r < 0 {
		i--
	} else if r >= width {
		i++
	}
	return i
}

// BucketAfter returns the bucket of the finest level that follows the one of a moment.
func (l *Ladder) BucketAfter(ms int64) Stretch {
	return Stretch{(l.index(0, ms) + 1) * l.width[0], l.width[0]}
}

// Stretch is a stretch of time: a bucket, or a single millisecond.
type Stretch struct {
	Start int64 // unix milliseconds
	Width int64 // milliseconds
}

// End is the first moment after it.
func (s Stretch) End() int64 { return s.Start + s.Width }

// Moment is the stretch of a single millisecond.
func Moment(ms int64) Stretch { return Stretch{ms, 1} }

// Cell is a stretch of time and the number of events in it.
type Cell struct {
	Stretch
	N int64
}

// oldest returns the oldest bucket of a level that does not have to fold. Buckets in the same
// bucket of the next level fold together, so that all events within it are equally precise.
func (l *Ladder) oldest(level int, now int64) int64 {
	i := l.index(level, now) - l.count[level]
	if next := level + 1; next < len(l.levels) {
		i = l.index(next, i*l.width[level]) * (l.width[next] / l.width[level])
	}
	return i
}

// CompleteFrom returns the first moment from which on a key certainly still has all events.
func (l *Ladder) CompleteFrom(now int64) int64 {
	last := len(l.levels) - 1
	return l.oldest(last, now) * l.width[last]
}

// Bucket returns the bucket that counts an event of a moment, by its age. It reports false if the
// event is too old to be counted.
func (l *Ladder) Bucket(ts, now int64) (s Stretch, ok bool) {
	a := l.ages(now)
	return a.bucket(ts)
}

// FoldTarget returns the bucket that a cell folds into, and whether it is due: a bucket is due if
// it is too old for its width, a millisecond unless it lies ahead of the present. It ignores
// whether a millisecond is exact. The result is zero for a cell that has left every window.
func (l *Ladder) FoldTarget(s Stretch, now int64) (into Stretch, due bool) {
	a := l.ages(now)
	return a.foldTarget(s)
}

// ages holds the moments at which the levels begin, as of now.
type ages struct {
	*Ladder
	now  int64
	from [MaxLevels]int64 // the first moment that each level counts
}

func (l *Ladder) ages(now int64) ages {
	a := ages{Ladder: l, now: now}
	for level := range l.levels {
		a.from[level] = l.oldest(level, now) * l.width[level]
	}
	return a
}

// bucket is Ladder.Bucket.
func (a *ages) bucket(ts int64) (s Stretch, ok bool) {
	for level, width := range a.width[:len(a.levels)] {
		if ts >= a.from[level] {
			return Stretch{a.index(level, ts) * width, width}, true
		}
	}
	return Stretch{}, false
}

// foldTarget is Ladder.FoldTarget.
func (a *ages) foldTarget(s Stretch) (into Stretch, due bool) {
	if s.End() <= a.from[len(a.levels)-1] {
		return Stretch{}, true
	}
	into, ok := a.bucket(s.Start)
	if s.Width == 1 {
		return into, s.Start <= a.now
	}
	return into, ok && into.Width > s.Width && into.End() >= s.End()
}
