package distinct

import (
	"math"
	"slices"

	"twotier.dev/twotier/internal/sketch"
	"twotier.dev/twotier/syncer"
)

// answers are what is remembered of a key that is asked again and again while its values stay as
// they are: who is refused goes on asking, and to merge all buckets each time would hold up the
// other keys of the shard. They hold for any values that are asked for, and as long as the buckets
// of the key are the same: whatever changes those unlearns all of it. They take at most as much
// memory as the values.
type answers struct {
	windows []windowAnswer
	fulls   []fullAnswer
	bytes   int64
}

// windowAnswer is what the buckets of a level from lo on have seen. It holds for every moment at
// which a window begins with bucket lo; once time has passed that, another lo is looked for.
type windowAnswer struct {
	level int
	lo    int64
	seen  *sketch.Snapshot
}

// fullAnswer is a bucket with which a level, read from the newest bucket on, has more than so many
// values: in other words, which must have left the window for values to fit.
type fullAnswer struct {
	level         int
	most          int64
	index         int64
	before, after *sketch.Snapshot // what the newer ones have seen; and together with this one
	// exact is the most that some of the newer ones have that are counted exactly.
	exact int64
}

// holds reports whether the bucket is the one for these values too: that is, the first with which
// the level has too many.
//
// With it, it has: that is counted. With all newer ones it has not: that is counted as well. So it
// has not with fewer of those. That is plain if the newer ones are counted exactly. If they are
// estimated, some of them are estimated at no more than all are, because a register that is raised
// only ever raises the estimate; but if they are few enough to be counted exactly, they may be more
// than an estimate of all says. Hence exact, to which the values add at most their number.
func (k *fullAnswer) holds(hashes []uint64) bool {
	n, relative := k.before.Count(hashes)
	if n > k.most || relative > 0 && k.exact+int64(len(hashes)) > k.most {
		return false
	}
	n, _ = k.after.Count(hashes)
	return n > k.most
}

// unlearn forgets all answers, because the buckets have changed.
func (en *entry) unlearn() { en.answers, en.still = answers{}, false }

// learns reports whether there is a reason to remember what a union has, and room.
func (en *entry) learns(u *sketch.Union) bool {
	return en.still && en.answers.bytes+u.Bytes() <= en.bytes-en.weighed
}

// learnWindow remembers what the buckets from lo on have seen.
func (en *entry) learnWindow(u *sketch.Union, level int, lo int64) {
	k := &en.answers
	k.windows = slices.DeleteFunc(k.windows, func(w windowAnswer) bool {
		over := w.level == level // the window has moved on
		if over {
			k.bytes -= w.seen.Bytes()
		}
		return over
	})
	if en.learns(u) {
		k.windows = append(k.windows, windowAnswer{level, lo, u.Snapshot()})
		k.bytes += u.Bytes()
	}
}

// learnFull remembers that bucket i of a level is the one with which it has too many values.
func (en *entry) learnFull(u *sketch.Union, level int, most int64, i int) {
	k, list := &en.answers, en.levels[level]
	k.fulls = slices.DeleteFunc(k.fulls, func(f fullAnswer) bool {
		over := f.level == level && f.most == most // it did not hold
		if over {
			k.bytes -= f.before.Bytes() + f.after.Bytes()
		}
		return over
	})
	if !en.still {
		return
	}
	f := fullAnswer{level: level, most: most, index: list[i].index}
	u.Reset()
	for j := len(list) - 1; j > i; j-- {
		u.Add(list[j].set)
		if n, exact := u.Exact(); exact {
			f.exact = n
		}
	}
	if !en.learns(u) {
		return
	}
	f.before = u.Snapshot()
	k.bytes += u.Bytes()
	if u.Add(list[i].set); !en.learns(u) {
		k.bytes -= f.before.Bytes()
		return
	}
	f.after = u.Snapshot()
	k.bytes += u.Bytes()
	k.fulls = append(k.fulls, f)
}

// count counts the values in a window that ends at a moment, together with some more.
func (en *entry) count(u *sketch.Union, window, at, now int64, more []uint64) Count {
	level, lo, hi, ok := en.ladder.span(window, at, now)
	if !ok { // validate has refused those
		return Count{Window: window}
	}
	c := Count{Window: window, BucketMS: en.ladder.Width(level)}
	if at >= now { // the clock of who added a value may have been ahead
		hi = math.MaxInt64
		for _, k := range en.answers.windows {
			if k.level == level && k.lo == lo {
				c.Values, c.Error = k.seen.Count(more)
				return c
			}
		}
	}
	u.Reset()
	list := en.levels[level]
	i, _ := en.find(level, lo)
	for ; i < len(list) && list[i].index <= hi; i++ {
		u.Add(list[i].set)
	}
	if at >= now && en.still {
		en.learnWindow(u, level, lo)
	}
	u.AddHashes(more)
	c.Values, c.Error = u.Count()
	return c
}

// retryAfter returns in how many milliseconds a window that would have too many values now would
// have room for some hashes, if no others are added until then, and -1 if it never has. The values
// of a bucket leave the window together, and those that newer buckets have as well stay.
func (en *entry) retryAfter(u *sketch.Union, l syncer.Limit, now int64, hashes []uint64) int64 {
	level, _, _, ok := en.ladder.span(l.Window, now, now)
	var none sketch.Snapshot
	if n, _ := none.Count(hashes); !ok || n > l.Max {
		return -1
	}
	index, found := en.full(u, level, l.Max, hashes)
	if !found {
		return 1 // an estimate that went down as values were added in another order
	}
	// The window begins a millisecond after the end of this bucket.
	return max(1, (index+1)*en.ladder.Width(level)+l.Window-1-now)
}

// full returns the first bucket, from the newest on, with which a level has more than most values
// together with some hashes.
func (en *entry) full(u *sketch.Union, level int, most int64, hashes []uint64) (int64, bool) {
	for i := range en.answers.fulls {
		k := &en.answers.fulls[i]
		if k.level == level && k.most == most && k.holds(hashes) {
			return k.index, true
		}
	}
	u.Reset()
	u.AddHashes(hashes)
	list := en.levels[level]
	for i := len(list) - 1; i >= 0; i-- {
		u.Add(list[i].set)
		if n, _ := u.Count(); n > most {
			en.learnFull(u, level, most, i)
			return list[i].index, true
		}
	}
	return 0, false
}
