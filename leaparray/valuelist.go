package leaparray

import (
	"math"
	"math/bits"
	"slices"
)

// ValueWidth is the width of the [Stretch] that stands for a value of a key, see [ValueAt].
const ValueWidth = -1

// ValueAt returns the stretch that stands for a value with this hash.
func ValueAt(hash uint64) Stretch { return Stretch{Start: int64(hash), Width: ValueWidth} }

// IsValue reports whether a stretch stands for a value, or for a class of values.
func (s Stretch) IsValue() bool { return s.Width == ValueWidth }

// ValueHash returns the hash of the value that a stretch stands for.
func (s Stretch) ValueHash() uint64 { return uint64(s.Start) }

// valueClasses is the number of classes of values. The hashes below stand for classes, see
// [ValueList].
const valueClasses = 64

// CleanHash returns the hash of a value that does not stand for a class.
func CleanHash(hash uint64) uint64 {
	if hash < valueClasses {
		hash |= 1 << 63
	}
	return hash
}

// DefaultMostValues is how many values of a key are kept unless told otherwise.
const DefaultMostValues = 4096

// ValueList are different values of a key, in the order of their hashes: pairs of a hash and when
// the value was last seen, in unix milliseconds. Lists merge by the later times, which is
// idempotent, commutative and associative.
//
// A key that would have more than its maximum of values keeps a sample (adaptive sampling, by
// Wegman; see Flajolet, "On adaptive sampling", 1990). The class of a value is the number of zero
// bits in which its hash ends. The lowest classes are left out: in place of their values the list
// has, under the number of the class, when the last of these was seen. A value that was seen until
// then counts no more, wherever it still is; one that is seen later does. So a window that begins
// after the last value was left out is exact, and others count the values of the classes above s,
// each of which stands for 2^s.
type ValueList []uint64

// Len returns how many pairs the list has.
func (l ValueList) Len() int { return len(l) / 2 }

// Find returns where a hash is, or would have to be inserted.
func (l ValueList) Find(hash uint64) (at int, found bool) {
	from, to := 0, l.Len()
	for from < to {
		if mid := (from + to) / 2; l[2*mid] < hash {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from, from < l.Len() && l[2*from] == hash
}

// At returns a pair.
func (l ValueList) At(i int) (hash uint64, seen int64) { return l[2*i], int64(l[2*i+1]) }

// SetSeen replaces the time of a pair.
func (l ValueList) SetSeen(i int, seen int64) { l[2*i+1] = uint64(seen) }

// Seen returns when a value was last seen, 0 if it is not on the list.
func (l ValueList) Seen(hash uint64) int64 {
	if i, found := l.Find(hash); found {
		return int64(l[2*i+1])
	}
	return 0
}

// With returns the list with a later time of a value. It may have changed the list.
func (l ValueList) With(hash uint64, seen int64) ValueList {
	i, found := l.Find(hash)
	if !found {
		return slices.Insert(l, 2*i, hash, uint64(seen))
	}
	l[2*i+1] = max(l[2*i+1], uint64(seen))
	return l
}

// Latest returns the latest time on the list.
func (l ValueList) Latest() (seen int64) {
	for i := 1; i < len(l); i += 2 {
		seen = max(seen, int64(l[i]))
	}
	return seen
}

// ValueCount is a number of values in a window. If it is an estimate, Error is its relative
// standard error, and the true number lies between Min and Max in 95 of 100 cases; otherwise it
// always does.
type ValueCount struct {
	Min, Count, Max int64
	Error           float64
}

// classOf returns the number of zero bits in which a hash ends.
func classOf(hash uint64) int { return min(bits.TrailingZeros64(hash), 63) }

// ValuesView reads two lists of one key as their merger. Either may be nil.
type ValuesView struct{ A, B ValueList }

// valueWalk goes through the values of a view in the order of their hashes.
type valueWalk struct {
	a, b ValueList
	// left has for each class when the last value of it was left out.
	left [valueClasses]int64
}

// begin begins a walk behind the classes.
func (w *valueWalk) begin(v ValuesView) {
	w.a, w.b = v.A, v.B
	for _, list := range []*ValueList{&w.a, &w.b} {
		for len(*list) > 0 && (*list)[0] < valueClasses {
			at := &w.left[(*list)[0]]
			*at = max(*at, int64((*list)[1]))
			*list = (*list)[2:]
		}
	}
}

// next returns the next value that was not left out, or 0 at the end.
func (w *valueWalk) next() (hash uint64, seen int64) {
	for {
		switch {
		case len(w.b) == 0 && len(w.a) == 0:
			return 0, 0
		case len(w.b) == 0 || len(w.a) > 0 && w.a[0] < w.b[0]:
			hash, seen, w.a = w.a[0], int64(w.a[1]), w.a[2:]
		case len(w.a) == 0 || w.b[0] < w.a[0]:
			hash, seen, w.b = w.b[0], int64(w.b[1]), w.b[2:]
		default:
			hash, seen = w.a[0], int64(max(w.a[1], w.b[1]))
			w.a, w.b = w.a[2:], w.b[2:]
		}
		if seen > w.left[classOf(hash)] {
			return hash, seen
		}
	}
}

// sampled returns how many zero bits the hashes of the values end in at least that are complete
// after a time.
func (w *valueWalk) sampled(after int64) (s int) {
	for class, at := range w.left {
		if at > after {
			s = class + 1
		}
	}
	return s
}

// Each calls fn with the values that count.
func (v ValuesView) Each(fn func(hash uint64, seen int64)) {
	var w valueWalk
	w.begin(v)
	for hash, seen := w.next(); hash != 0; hash, seen = w.next() {
		fn(hash, seen)
	}
}

// seen returns when a value was last seen, and until when values of its class were left out; 0 if
// they were not.
func (v ValuesView) seen(hash uint64) (seen, left int64) {
	class := uint64(classOf(hash))
	return max(v.A.Seen(hash), v.B.Seen(hash)), max(v.A.Seen(class), v.B.Seen(class))
}

// Len returns how many values count.
func (v ValuesView) Len() (n int) {
	v.Each(func(uint64, int64) { n++ })
	return n
}

// Latest returns when the last value was seen, or left out.
func (v ValuesView) Latest() int64 { return max(v.A.Latest(), v.B.Latest()) }

// Count counts the values seen after one time and until another, and these together with further
// ones, whose hashes are in order. Of values that were seen again later it is not known whether they
// belong to them: Count then lies in the middle.
func (v ValuesView) Count(after, until int64, more []uint64) (without, with ValueCount) {
	var w valueWalk
	w.begin(v)
	s := w.sampled(after)
	in, later, outside := 0, 0, uint64(1)<<s-1
	fresh, laterAgain := 0, 0 // of the further ones
	for hash, seen := w.next(); hash != 0; hash, seen = w.next() {
		for len(more) > 0 && more[0] < hash {
			if more[0]&outside == 0 {
				fresh++
			}
			more = more[1:]
		}
		again := len(more) > 0 && more[0] == hash
		if again {
			more = more[1:]
		}
		switch {
		case hash&outside != 0:
		case seen > after && seen <= until:
			in++
		case seen > until:
			if later++; again {
				laterAgain++
			}
		case again:
			fresh++
		}
	}
	for _, hash := range more {
		if hash&outside == 0 {
			fresh++
		}
	}
	return estimateValues(in, later, s), estimateValues(in+fresh+laterAgain, later-laterAgain, s)
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

// RetryAfter returns after how many milliseconds a window that ends then would have room for
// further values, whose hashes are in order, if nothing else is seen until then: -1 if it never
// would.
func (v ValuesView) RetryAfter(window, most, now int64, more []uint64) int64 {
	if int64(len(more)) > most {
		return -1
	}
	var w valueWalk
	w.begin(v)
	after := now - window
	s := w.sampled(after)
	outside := uint64(1)<<s - 1
	times := make([]int64, 0, v.A.Len()+v.B.Len()) // of the values that may leave the window
	for hash, seen := w.next(); hash != 0; hash, seen = w.next() {
		if seen <= after || hash&outside != 0 {
			continue
		}
		if _, again := slices.BinarySearch(more, hash); !again {
			times = append(times, seen)
		}
	}
	excess := len(times) - int(most>>s)
	for _, hash := range more {
		if hash&outside == 0 {
			excess++
		}
	}
	if excess <= 0 || len(times) == 0 {
		return 1 // which only an estimate can say
	}
	return max(1, smallest(times, min(excess, len(times))-1)+window-now)
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

// See calls put with what is to be added to a list of the view, because values were seen at a time:
// these values, in their order, and then, if there are more than most that count after the time since, classes to leave
// out. Then some room is left for further values.
func (v ValuesView) See(values []uint64, at, since int64, most int,
	put func(hash uint64, seen int64)) {
	fresh := 0
	for _, hash := range values {
		if seen, left := v.seen(hash); at > max(seen, left) {
			if put(hash, at); seen <= left {
				fresh++
			}
		}
	}
	if fresh > 0 && v.A.Len()+v.B.Len()+len(values) > most {
		v.leaveOut(values, at, since, most, put)
	}
}

// leaveOut calls put with the classes that are to be left out.
func (v ValuesView) leaveOut(values []uint64, at, since int64, most int,
	put func(hash uint64, seen int64)) {
	var numbers [valueClasses]int
	var latest [valueClasses]int64
	n := 0
	count := func(hash uint64, seen int64) {
		if class := classOf(hash); seen > since {
			numbers[class]++
			latest[class] = max(latest[class], seen)
			n++
		}
	}
	rest := values
	v.Each(func(hash uint64, seen int64) {
		for len(rest) > 0 && rest[0] < hash {
			count(rest[0], at)
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0] == hash {
			seen, rest = max(seen, at), rest[1:]
		}
		count(hash, seen)
	})
	for _, hash := range rest {
		count(hash, at)
	}
	if n <= most {
		return
	}
	// With some room left, the next few values need no other class.
	for class := 0; n > most-most/16 && class < valueClasses; class++ {
		if n -= numbers[class]; latest[class] > 0 {
			put(uint64(class), latest[class])
		}
	}
}

// EachIdle calls fn with what need not be kept of list A: values that were left out, and everything
// that was last seen until a time.
func (v ValuesView) EachIdle(until int64, fn func(hash uint64, seen int64)) {
	var w valueWalk
	w.begin(v)
	for i := range v.A.Len() {
		hash, seen := v.A.At(i)
		if seen <= until || hash >= valueClasses && seen <= w.left[classOf(hash)] {
			fn(hash, seen)
		}
	}
}
