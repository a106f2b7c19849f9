package leaparray

import (
	"math"
	"math/bits"
	"slices"
)

// ValueCount is a number of values in a window. If it is an estimate, Error is its relative
// standard error, and the true number lies between Min and Max in 95 of 100 cases; otherwise it
// always does.
type ValueCount struct {
	Min, Count, Max int64
	Error           float64
}

// classOf returns the number of zero bits in which a hash ends.
func classOf(hash uint64) int { return min(bits.TrailingZeros64(hash), 63) }

// bySize returns the longer of the two lists, and the other one.
func (v ValuesView) bySize() (long, short ValueList) {
	if len(v.B) > len(v.A) {
		return v.B, v.A
	}
	return v.A, v.B
}

// leftOut returns for each class until when its values were left out, and whether any were.
func (v ValuesView) leftOut() (left [valueClasses]int64, any bool) {
	for _, list := range [...]ValueList{v.A, v.B} {
		for ; len(list) > 0 && list[0] < valueClasses; list = list[2:] {
			left[list[0]], any = max(left[list[0]], int64(list[1])), true
		}
	}
	return left, any
}

// window counts the values of a sample in a window.
type window struct {
	after, until int64
	outside      uint64 // the bits that are zero in the hashes of the sample
	left         [valueClasses]int64
	sampled      int
	anyLeft      bool
	in, later    int
}

func (v ValuesView) window(after, until int64) (w window) {
	w.after, w.until = after, until
	if w.left, w.anyLeft = v.leftOut(); w.anyLeft {
		for class, at := range w.left {
			if at > after {
				w.sampled = class + 1
			}
		}
	}
	w.outside = 1<<w.sampled - 1
	return w
}

// includes reports whether a value that was last seen at a time is part of the sample, and seen
// after the window's start.
func (w *window) includes(hash uint64, seen int64) bool {
	return seen > w.after && hash&w.outside == 0 && hash >= valueClasses &&
		(!w.anyLeft || seen > w.left[classOf(hash)])
}

// add counts a value n times.
func (w *window) add(hash uint64, seen int64, n int) {
	switch {
	case !w.includes(hash, seen):
	case seen <= w.until:
		w.in += n
	default:
		w.later += n
	}
}

// addAll counts the values of both lists, each once: those of the longer one, and then what the
// shorter one changes.
func (w *window) addAll(v ValuesView) {
	long, short := v.bySize()
	if w.anyLeft {
		for i := range long.Len() {
			w.add(long[2*i], int64(long[2*i+1]), 1)
		}
	} else {
		for i := 1; i < len(long); i += 2 {
			if seen := int64(long[i]); seen > w.until {
				w.later++
			} else if seen > w.after {
				w.in++
			}
		}
	}
	for i := range short.Len() {
		hash, seen := short.At(i)
		if held := long.Seen(hash); held > 0 {
			w.add(hash, held, -1)
			seen = max(seen, held)
		}
		w.add(hash, seen, 1)
	}
}

// Count counts the values seen after one time and until another. Of values that were seen again
// later it is not known whether they belong to them: Count then lies in the middle.
func (v ValuesView) Count(after, until int64) ValueCount {
	n, _ := v.CountWith(after, until, nil, nil)
	return n
}

// AppendSeen appends when each of some values was last seen, 0 for never.
func (v ValuesView) AppendSeen(to []int64, values []uint64) []int64 {
	for _, hash := range values {
		seen, _ := v.seen(hash)
		to = append(to, seen)
	}
	return to
}

// CountWith counts as Count does, and also together with further values: their hashes, and the
// times that AppendSeen has for them.
func (v ValuesView) CountWith(after, until int64, more []uint64,
	seen []int64) (without, with ValueCount) {
	w := v.window(after, until)
	w.addAll(v)
	without = estimateValues(w.in, w.later, w.sampled)
	for i, hash := range more {
		if hash&w.outside == 0 {
			w.add(hash, seen[i], -1)
			w.in++
		}
	}
	return without, estimateValues(w.in, w.later, w.sampled)
}

// estimateValues returns the count of values in a sample, and of ones that may belong to them.
func estimateValues(in, later, s int) ValueCount {
	c := ValueCount{Min: scaled(float64(in), s), Max: scaled(float64(in+later), s)}
	c.Count = c.Min + (c.Max-c.Min)/2
	if s == 0 {
		return c
	}
	c.Error = errorOf(in+later, s)
	c.Min = scaled(float64(in)*max(0, 1-2*errorOf(in, s)), s)
	c.Max = scaled(float64(in+later)*(1+2*c.Error), s)
	if in+later == 0 {
		c.Max = scaled(3, s)
	}
	return c
}

// RetryAfter returns after how many milliseconds a window that ends then would have room for
// further values, whose hashes are in order, if nothing else is seen until then: -1 if it never
// would.
func (v ValuesView) RetryAfter(length, most, now int64, more []uint64) int64 {
	if int64(len(more)) > most {
		return -1
	}
	w := v.window(now-length, math.MaxInt64)
	w.addAll(v)
	excess := w.in + w.later - int(most>>w.sampled)
	for _, hash := range more {
		if hash&w.outside == 0 {
			if seen, _ := v.seen(hash); !w.includes(hash, seen) {
				excess++
			}
		}
	}
	if excess <= 0 {
		return 1 // which only an estimate can say
	}
	leaves := v.leaving(&w, excess, more)
	if leaves == 0 {
		return 1
	}
	return max(1, leaves+length-now)
}

// leaving returns when the nth value was seen, by time, of those in a window that are not among
// more; or the last, or 0 if there are none.
func (v ValuesView) leaving(w *window, n int, more []uint64) int64 {
	if n == 1 { // nearly always: a limit is reached, and one more value comes
		return v.oldest(w, more)
	}
	times := make([]int64, 0, w.in+w.later)
	v.eachIn(w, more, func(seen int64) { times = append(times, seen) })
	if len(times) == 0 {
		return 0
	}
	return smallest(times, min(n, len(times))-1)
}

// oldest is leaving for the first value.
func (v ValuesView) oldest(w *window, more []uint64) int64 {
	first := int64(math.MaxInt64)
	isMore := func(hash uint64) bool {
		_, found := slices.BinarySearch(more, hash)
		return found
	}
	long, short := v.bySize()
	for i := range long.Len() {
		if hash, seen := long.At(i); seen < first && w.includes(hash, seen) &&
			short.Seen(hash) == 0 && !isMore(hash) {
			first = seen
		}
	}
	for i := range short.Len() {
		hash, seen := short.At(i)
		seen = max(seen, long.Seen(hash))
		if seen < first && w.includes(hash, seen) && !isMore(hash) {
			first = seen
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}

// eachIn calls fn with the times of the values of a sample in a window that are not among more.
func (v ValuesView) eachIn(w *window, more []uint64, fn func(seen int64)) {
	long, short := v.bySize()
	visit := func(hash uint64, seen int64) {
		if w.includes(hash, seen) {
			if _, again := slices.BinarySearch(more, hash); !again {
				fn(seen)
			}
		}
	}
	for i := range long.Len() {
		hash, seen := long.At(i)
		if len(short) > 0 {
			seen = max(seen, short.Seen(hash))
		}
		visit(hash, seen)
	}
	for i := range short.Len() {
		if hash, seen := short.At(i); long.Seen(hash) == 0 {
			visit(hash, seen)
		}
	}
}

// errorOf returns the relative standard error of a sample of so many values.
func errorOf(n, s int) float64 {
	if n == 0 {
		return 1
	}
	return math.Sqrt((1 - math.Ldexp(1, -s)) / float64(n))
}

// scaled returns for how many values n of a sample stand.
func scaled(n float64, s int) int64 {
	return int64(min(math.Round(math.Ldexp(n, s)), math.MaxInt64/2))
}

// smallest returns the number that would be at position n if the list were in order (quickselect,
// by Hoare).
func smallest(list []int64, n int) int64 {
	for first, last := 0, len(list)-1; first < last; {
		pivot, i, j := list[(first+last)/2], first, last
		for i <= j {
			for list[i] < pivot {
				i++
			}
			for list[j] > pivot {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			last = j
		case n >= i:
			first = i
		default:
			return list[n]
		}
	}
	return list[n]
}
