package leaparray

import (
	"errors"
	"fmt"
	"time"
)

// Limits of a ladder.
const (
	// MaxLevels is the largest number of levels.
	MaxLevels = 7
	// MaxBuckets is the largest number of buckets in a level.
	MaxBuckets = 4096
	// MaxTotal is the largest number of buckets in all levels together. Redis takes 35 ms to read
	// a key that has so many, and answers nobody meanwhile.
	MaxTotal = 14_400
	// MinWidth is the smallest width of a bucket.
	MinWidth = 50 * time.Millisecond
	// MaxAhead is how far in the future an event may lie without pushing out a bucket that a window
	// ending now still needs.
	MaxAhead = 2 * time.Second
)

// ErrLadder is wrapped by every error about the shape of a ladder.
var ErrLadder = errors.New("invalid ladder")

// Level is a number of buckets of one width.
type Level struct {
	// Width is the length of a bucket: whole milliseconds, at least MinWidth.
	Width time.Duration
	// Count is the number of buckets, 1 to MaxBuckets. The level covers windows up to Width x
	// Count.
	Count int
}

// Span is the longest window that the level covers.
func (l Level) Span() time.Duration { return l.Width * time.Duration(l.Count) }

// Ladder is an immutable list of levels, finest first. How its levels are stored may change.
type Ladder struct {
	levels []Level
	width  [MaxLevels]int64   // milliseconds
	perMS  [MaxLevels]float64 // 1 / width
	span   [MaxLevels]int64   // milliseconds
	keep   [MaxLevels]int64   // buckets behind the newest one that are kept
	slots  [MaxLevels]int     // of a dense ring
	// start[mask][level] is where the ring of a level begins in a counter whose dense levels are
	// mask; the entry after the last level is where the sparse buckets begin.
	start    [][MaxLevels + 1]uint16
	storedAs func() *StoredLevels // may be nil
}

// DefaultLevels are 1 s, 1 m and 15 m buckets covering a minute, an hour and a day.
func DefaultLevels() []Level {
	return []Level{{time.Second, 60}, {time.Minute, 60}, {15 * time.Minute, 96}}
}

// NewLadder checks the levels and returns their ladder. Both widths and spans must grow from level
// to level. The error wraps ErrLadder and names the level.
func NewLadder(levels ...Level) (*Ladder, error) {
	if len(levels) == 0 || len(levels) > MaxLevels {
		return nil, fmt.Errorf("%w: %d levels, want 1 to %d", ErrLadder, len(levels), MaxLevels)
	}
	l := &Ladder{levels: append([]Level(nil), levels...)}
	total := 0
	for i, lv := range levels {
		if err := checkLevel(levels, i); err != nil {
			return nil, err
		}
		l.width[i] = lv.Width.Milliseconds()
		l.perMS[i] = 1 / float64(l.width[i])
		l.span[i] = lv.Span().Milliseconds()
		l.keep[i] = lv.Keep()
		l.slots[i] = int(l.keep[i]) + 2
		total += lv.Count
	}
	if total > MaxTotal {
		return nil, fmt.Errorf("%w: %d buckets in all levels, want at most %d", ErrLadder, total,
			MaxTotal)
	}
	l.layOut()
	return l, nil
}

func checkLevel(levels []Level, i int) error {
	lv := levels[i]
	switch {
	case lv.Width < MinWidth || lv.Width%time.Millisecond != 0:
		return fmt.Errorf("%w: level %d: width %v, want whole milliseconds, at least %v", ErrLadder,
			i, lv.Width, MinWidth)
	case lv.Count < 1 || lv.Count > MaxBuckets:
		return fmt.Errorf("%w: level %d: %d buckets, want 1 to %d", ErrLadder, i, lv.Count,
			MaxBuckets)
	case lv.Width > 366*24*time.Hour || lv.Span() > 10*366*24*time.Hour:
		return fmt.Errorf("%w: level %d: covers %v, want at most ten years", ErrLadder, i,
			lv.Span())
	case i > 0 && lv.Width <= levels[i-1].Width:
		return fmt.Errorf("%w: level %d: width %v, want more than the finer level's %v", ErrLadder,
			i, lv.Width, levels[i-1].Width)
	case i > 0 && lv.Span() <= levels[i-1].Span():
		return fmt.Errorf("%w: level %d: covers %v, want more than the finer level's %v", ErrLadder,
			i, lv.Span(), levels[i-1].Span())
	}
	return nil
}

func (l *Ladder) layOut() {
	l.start = make([][MaxLevels + 1]uint16, 1<<len(l.levels))
	for mask := range l.start {
		at := 1
		for i := range l.levels {
			l.start[mask][i] = uint16(at)
			if mask&(1<<i) != 0 {
				at += ringHead + l.slots[i]
			}
		}
		l.start[mask][len(l.levels)] = uint16(at)
	}
}

// Levels returns a copy of the levels.
func (l *Ladder) Levels() []Level { return append([]Level(nil), l.levels...) }

// Len is the number of levels.
func (l *Ladder) Len() int { return len(l.levels) }

// Width is the width of a level's buckets in milliseconds.
func (l *Ladder) Width(level int) int64 { return l.width[level] }

// Keep is how many buckets behind the newest one a level keeps.
func (l *Ladder) Keep(level int) int64 { return l.keep[level] }

// Most is the largest number of buckets a key can have: for each level the newest one plus those
// kept behind it.
func (l *Ladder) Most() (n int) {
	for i := range l.levels {
		n += int(l.keep[i]) + 1
	}
	return n
}

// Span is the longest window that the ladder covers, in milliseconds.
func (l *Ladder) Span() int64 { return l.span[len(l.levels)-1] }

// FineSpan is the longest window that the finest level covers, in milliseconds.
func (l *Ladder) FineSpan() int64 { return l.span[0] }

// MaxWords is the length of a block in which every level is dense.
func (l *Ladder) MaxWords() int { return int(l.start[len(l.start)-1][len(l.levels)]) }

// String formats the ladder like "1s x 60, 1m x 60, 15m x 96".
func (l *Ladder) String() string {
	s := ""
	for i, lv := range l.levels {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s x %d", shortDuration(lv.Width), lv.Count)
	}
	return s
}

func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// Stamp holds, for every level, the index of the bucket that one moment falls into.
type Stamp [MaxLevels]int64

// Stamp returns the buckets of a moment, in unix milliseconds, which must not be negative.
func (l *Ladder) Stamp(ms int64) (s Stamp) {
	for i := range l.levels {
		s[i] = l.Index(i, ms)
	}
	return s
}

// Index returns the bucket of a level that a moment falls into. The quotient is rounded down, so
// the result may be negative, as for the start of a window. Moments up to 2^53 ms on either side of
// 1970 work, which is 285,000 years.
//
// A 64-bit division would cost more than the rest of an add. The product with the reciprocal is off
// by at most one, which the remainder shows.
func (l *Ladder) Index(level int, ms int64) int64 {
	width := l.width[level]
	i := int64(float64(ms) * l.perMS[level])
	if r := ms - i*width; r < 0 {
		i--
	} else if r >= width {
		i++
	}
	return i
}
