package leaparray

import (
	"math"
	"math/bits"
	"slices"
)

// Value is a value of a key: a hash of it, and when it was last seen, in unix milliseconds.
type Value struct {
	Hash uint64
	Seen int64
}

// DefaultMostValues is how many values of a key [Values] hold unless told otherwise.
const DefaultMostValues = 4096

// Values are the different values of a key. A window that ends now has the values last seen in it,
// so it is counted to the millisecond.
//
// Two copies merge by the later times, which is idempotent, commutative and associative. A reset is
// a time too: a value that was last seen until then is gone.
//
// A copy that would hold more than its maximum keeps a sample: the values whose hashes end in at
// least s zero bits, each of which stands for 2^s (adaptive sampling, by Wegman; see Flajolet, "On
// adaptive sampling", 1990). It remembers for each number of zero bits when the last value was left
// out, so a window that begins later is exact again.
type Values struct {
	list []Value // by hash
	// dropped has for each class the last time at which a value of it was seen and left out, 0 if
	// none was.
	dropped []int64
	reset   int64
	// floor is the lowest class that this copy holds. Others may hold more.
	floor   int
	changed uint64
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

// Len returns how many values the copy holds.
func (v *Values) Len() int { return len(v.list) }

// IsEmpty reports whether there is nothing to remember.
func (v *Values) IsEmpty() bool {
	return len(v.list) == 0 && len(v.dropped) == 0 && v.reset == 0
}

// Bytes returns the memory that the copy uses beside its own struct.
func (v *Values) Bytes() int64 { return int64(16*cap(v.list) + 8*cap(v.dropped)) }

// Clone returns a copy.
func (v *Values) Clone() Values {
	c := *v
	c.list, c.dropped = slices.Clone(v.list), slices.Clone(v.dropped)
	return c
}

// See records that a value was seen at a time. The copy then holds at most so many values.
func (v *Values) See(hash uint64, at int64, most int) (changed bool) {
	if at <= v.reset {
		return false
	}
	if class := classOf(hash); class < v.floor {
		return v.drop(class, at)
	}
	i, found := v.find(hash)
	switch {
	case found && v.list[i].Seen >= at:
		return false
	case found:
		v.list[i].Seen = at
	default:
		v.list = slices.Insert(v.list, i, Value{hash, at})
	}
	v.mark(hash)
	if len(v.list) > most {
		v.shrink(most)
	}
	return true
}

// Present returns the time at which a value counts that is seen now: after the last reset, whose
// clock may be ahead.
func (v *Values) Present(now int64) int64 { return max(now, v.reset+1) }

func (v *Values) find(hash uint64) (at int, found bool) {
	return slices.BinarySearchFunc(v.list, hash, func(has Value, hash uint64) int {
		switch {
		case has.Hash < hash:
			return -1
		case has.Hash > hash:
			return 1
		}
		return 0
	})
}

// drop records that a value of a class was left out.
func (v *Values) drop(class int, at int64) (changed bool) {
	for len(v.dropped) <= class {
		v.dropped = append(v.dropped, 0)
	}
	if v.dropped[class] >= at {
		return false
	}
	v.dropped[class] = at
	v.changed |= headChunk
	return true
}

// shrink leaves out classes until there are at most so many values.
func (v *Values) shrink(most int) {
	for len(v.list) > most {
		class := v.floor
		v.floor++
		v.remove(func(has Value) bool {
			if classOf(has.Hash) != class {
				return false
			}
			v.drop(class, has.Seen)
			v.mark(has.Hash)
			return true
		})
	}
}

// remove deletes values, and gives memory back once most of it is unused.
func (v *Values) remove(gone func(Value) bool) {
	v.list = slices.DeleteFunc(v.list, gone)
	if n := len(v.list); cap(v.list) > 8 && n < cap(v.list)/4 {
		v.list = append(make([]Value, 0, 2*n), v.list...)
	}
}

// Forget makes a reset that all values precede that were seen until a time.
func (v *Values) Forget(until int64) (changed bool) {
	if until <= v.reset {
		return false
	}
	v.reset = until
	v.changed |= headChunk
	v.remove(func(has Value) bool {
		if has.Seen > until {
			return false
		}
		v.mark(has.Hash)
		return true
	})
	v.trim(until)
	return true
}

// Newest returns when the last value was seen or left out, or the last reset was.
func (v *Values) Newest() int64 {
	last := v.reset
	for _, has := range v.list {
		last = max(last, has.Seen)
	}
	for _, at := range v.dropped {
		last = max(last, at)
	}
	return last
}

// Prune removes what was last seen until a time, because no window reaches it any more. A store
// that still has it differs in nothing that counts.
func (v *Values) Prune(until int64, most int) (changed bool) {
	before := len(v.list)
	v.remove(func(has Value) bool { return has.Seen <= until })
	v.trim(until)
	if v.reset <= until {
		v.reset = 0
	}
	if v.floor > 0 && len(v.list) < most/4 {
		v.floor--
	}
	return len(v.list) < before
}

// trim forgets what was left out until a time.
func (v *Values) trim(until int64) {
	last := 0
	for class, at := range v.dropped {
		if at <= until {
			v.dropped[class] = 0
		} else {
			last = class + 1
		}
	}
	if v.dropped = v.dropped[:last]; last == 0 {
		v.dropped = nil
	}
}

// Merge adds what another copy has.
func (v *Values) Merge(from *Values, most int) (changed bool) {
	changed = v.Forget(from.reset)
	for class, at := range from.dropped {
		if at > v.reset && v.drop(class, at) {
			changed = true
		}
	}
	for _, has := range from.list {
		if v.See(has.Hash, has.Seen, most) {
			changed = true
		}
	}
	return changed
}

// sampled returns how many zero bits the hashes of the values have at least that are complete after
// a time.
func (v *Values) sampled(after int64) (s int) {
	for class, at := range v.dropped {
		if at > after {
			s = class + 1
		}
	}
	return s
}

// Count counts the values seen after one time and until another, together with further ones, whose
// hashes are in order. Of values that were seen again later it is not known whether they belong to
// them: Count then lies in the middle.
func (v *Values) Count(after, until int64, more []uint64) ValueCount {
	s := v.sampled(after)
	in, later, outside := 0, 0, uint64(1)<<s-1
	for _, has := range v.list {
		switch {
		case has.Seen <= after || has.Hash&outside != 0:
		case has.Seen <= until:
			in++
		default:
			later++
		}
	}
	for _, hash := range more {
		if hash&outside == 0 && !v.hasWithin(hash, after, until) {
			in++
		}
	}
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

func (v *Values) hasWithin(hash uint64, after, until int64) bool {
	i, found := v.find(hash)
	return found && v.list[i].Seen > after && v.list[i].Seen <= until
}

// RetryAfter returns after how many milliseconds a window that ends then would have room for
// further values, whose hashes are in order, if nothing else is seen until then: -1 if it never
// would.
func (v *Values) RetryAfter(window, most, now int64, more []uint64) int64 {
	if int64(len(more)) > most {
		return -1
	}
	after := now - window
	s := v.sampled(after)
	outside := uint64(1)<<s - 1
	times := make([]int64, 0, len(v.list)) // of the values that may leave the window
	for _, has := range v.list {
		if has.Seen <= after || has.Hash&outside != 0 {
			continue
		}
		if _, again := slices.BinarySearch(more, has.Hash); !again {
			times = append(times, has.Seen)
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
