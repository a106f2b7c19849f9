package distinct

import (
	"math"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/sketch"
)

// answers caches results for a key that is asked again and again while its values stay the same:
// refused clients keep asking, and merging all buckets each time would hold up the other keys of
// the shard. Cached answers apply to any requested values, but only while the key's buckets are
// unchanged: every change discards all of them. They take at most as much memory as the values.
type answers struct {
	windows []windowAnswer
	fulls   []fullAnswer
	bytes   int64
}

// windowAnswer is the union of a level's buckets from lo on. It applies at every moment at which a
// window begins with bucket lo; as time moves on, lookups ask for another lo.
type windowAnswer struct {
	level int
	lo    int64
	seen  *sketch.Snapshot
}

// fullAnswer is the bucket at which a level, read from the newest bucket on, exceeds the maximum,
// most. It must leave the window before the values fit.
type fullAnswer struct {
	level         int
	most          int64
	index         int64
	before, after *sketch.Snapshot // the union of all newer buckets; and of this one, too
	// exact is the largest exact count of a run of the newer buckets.
	exact int64
}

// appliesTo reports whether the bucket is the right one for these hashes too: the first, from the
// newest on, with which the level has too many values.
//
// Including the bucket there are too many, because after counts them. With all newer buckets there
// are not, because before counts them, so there can't be with only some of the newer ones. That is
// obvious if the newer buckets are counted exactly. If they are estimated, an estimate of some of
// them never exceeds the estimate of all, because raising a register only ever raises the estimate;
// but a run short enough to be counted exactly may exceed the estimate of all. Hence exact, to
// which the hashes add at most their number.
func (k *fullAnswer) appliesTo(hashes []uint64) bool {
	n, relative := k.before.Count(hashes)
	if n > k.most || relative > 0 && k.exact+int64(len(hashes)) > k.most {
		return false
	}
	n, _ = k.after.Count(hashes)
	return n > k.most
}

// clearAnswers forgets all answers, because the buckets have changed.
func (en *entry) clearAnswers() { en.answers, en.still = answers{}, false }

// isWorthCaching reports whether the answer from a union is worth caching, and fits.
func (en *entry) isWorthCaching(u *sketch.Union) bool {
	return en.still && en.answers.bytes+u.Bytes() <= en.bytes-en.weighed
}

// cacheWindow caches the union of the buckets from lo on.
func (en *entry) cacheWindow(u *sketch.Union, level int, lo int64) {
	k := &en.answers
	k.windows = slices.DeleteFunc(k.windows, func(w windowAnswer) bool {
		over := w.level == level // the window has moved on
		if over {
			k.bytes -= w.seen.Bytes()
		}
		return over
	})
	if en.isWorthCaching(u) {
		k.windows = append(k.windows, windowAnswer{level, lo, u.Snapshot()})
		k.bytes += u.Bytes()
	}
}

// cacheFull caches bucket i of a level as the one with which the level exceeds the maximum, most.
func (en *entry) cacheFull(u *sketch.Union, level int, most int64, i int) {
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
	if !en.isWorthCaching(u) {
		return
	}
	f.before = u.Snapshot()
	k.bytes += u.Bytes()
	if u.Add(list[i].set); !en.isWorthCaching(u) {
		k.bytes -= f.before.Bytes()
		return
	}
	f.after = u.Snapshot()
	k.bytes += u.Bytes()
	k.fulls = append(k.fulls, f)
}

// count counts the values in a window that ends at a moment, together with the hashes in more.
func (en *entry) count(u *sketch.Union, window, at, now int64, more []uint64) Count {
	level, lo, hi, ok := en.ladder.bucketRange(window, at, now)
	if !ok { // validate has refused such windows
		return Count{Window: window}
	}
	c := Count{Window: window, BucketMS: en.ladder.Width(level)}
	if at >= now { // the node that added a value may have a clock ahead of ours
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
		en.cacheWindow(u, level, lo)
	}
	u.AddHashes(more)
	c.Values, c.Error = u.Count()
	return c
}

// retryAfter returns the time in milliseconds until a window that is too full now would have room
// for some hashes, if no others are added until then, and -1 if it never would. The values of a
// bucket leave the window together, except the ones that newer buckets hold as well.
func (en *entry) retryAfter(u *sketch.Union, l twotier.Limit, now int64, hashes []uint64) int64 {
	level, _, _, ok := en.ladder.bucketRange(l.Window, now, now)
	var none sketch.Snapshot
	if n, _ := none.Count(hashes); !ok || n > l.Max {
		return -1
	}
	index, found := en.fullBucket(u, level, l.Max, hashes)
	if !found {
		return 1 // adding values in another order has lowered an estimate
	}
	// The window begins a millisecond after the end of this bucket.
	return max(1, (index+1)*en.ladder.Width(level)+l.Window-1-now)
}

// fullBucket returns the first bucket, from the newest on, with which a level and the given hashes
// exceed the maximum, most.
func (en *entry) fullBucket(u *sketch.Union, level int, most int64, hashes []uint64) (int64, bool) {
	for i := range en.answers.fulls {
		k := &en.answers.fulls[i]
		if k.level == level && k.most == most && k.appliesTo(hashes) {
			return k.index, true
		}
	}
	u.Reset()
	u.AddHashes(hashes)
	list := en.levels[level]
	for i := len(list) - 1; i >= 0; i-- {
		u.Add(list[i].set)
		if n, _ := u.Count(); n > most {
			en.cacheFull(u, level, most, i)
			return list[i].index, true
		}
	}
	return 0, false
}
