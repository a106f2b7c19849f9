package leaparray

import "slices"

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

// values returns the list without its classes.
func (l ValueList) values() ValueList {
	for len(l) > 0 && l[0] < valueClasses {
		l = l[2:]
	}
	return l
}

// Latest returns the latest time on the list.
func (l ValueList) Latest() (seen int64) {
	for i := 1; i < len(l); i += 2 {
		seen = max(seen, int64(l[i]))
	}
	return seen
}

// ValuesView reads two lists of one key as their merger. Either may be nil.
type ValuesView struct{ A, B ValueList }

// Each calls fn with the values that count, in the order of their hashes.
func (v ValuesView) Each(fn func(hash uint64, seen int64)) {
	a, b := v.A.values(), v.B.values()
	left, _ := v.leftOut()
	for len(a)+len(b) > 0 {
		var hash, seen uint64
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			hash, seen, a = a[0], a[1], a[2:]
		case len(a) == 0 || b[0] < a[0]:
			hash, seen, b = b[0], b[1], b[2:]
		default:
			hash, seen, a, b = a[0], max(a[1], b[1]), a[2:], b[2:]
		}
		if int64(seen) > left[classOf(hash)] {
			fn(hash, int64(seen))
		}
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

// See calls put with what is to be added to a list of the view, because values were seen at a time:
// these values, in their order, and then classes to leave out, if more than most values would count
// that were seen after the time since. Some room is then left for further values. A value of list A
// that was seen later is added to B as it is: the store may have lost it.
func (v ValuesView) See(values []uint64, at, since int64, most int,
	put func(hash uint64, seen int64)) {
	fresh := 0
	for _, hash := range values {
		switch seen, left := v.seen(hash); {
		case at > max(seen, left):
			if put(hash, at); seen <= max(left, since) {
				fresh++
			}
		case seen > left && v.B.Seen(hash) == 0:
			put(hash, seen)
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
	left, _ := v.leftOut()
	for i := range v.A.Len() {
		hash, seen := v.A.At(i)
		if seen <= until || hash >= valueClasses && seen <= left[classOf(hash)] {
			fn(hash, seen)
		}
	}
}
