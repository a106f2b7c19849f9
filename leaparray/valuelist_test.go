package leaparray_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier/leaparray"
)

const (
	valuesNow  = 1_700_000_000_000
	valuesSpan = 100_000
)

// see sees values, whose hashes are in order, in a list.
func see(l leaparray.ValueList, at, since int64, most int,
	hashes ...uint64) leaparray.ValueList {
	var put leaparray.ValueList
	leaparray.ValuesView{A: l}.See(hashes, at, since, most, func(hash uint64, seen int64) {
		put = append(put, hash, uint64(seen))
	})
	return merge(l, put)
}

// merge returns the merger of lists. It may have changed the first.
func merge(l leaparray.ValueList, more ...leaparray.ValueList) leaparray.ValueList {
	for _, o := range more {
		for i := range o.Len() {
			l = l.With(o.At(i))
		}
	}
	return l
}

// prune returns a list without what need not be kept.
func prune(l leaparray.ValueList, until int64) (kept leaparray.ValueList) {
	idle := map[uint64]bool{}
	leaparray.ValuesView{A: l}.EachIdle(until, func(hash uint64, _ int64) { idle[hash] = true })
	for i := range l.Len() {
		if hash, seen := l.At(i); !idle[hash] {
			kept = kept.With(hash, seen)
		}
	}
	return kept
}

// countAll counts all values of a list.
func countAll(l leaparray.ValueList) leaparray.ValueCount {
	n := leaparray.ValuesView{A: l}.Count(0, math.MaxInt64)
	return n
}

// spread returns one of many hashes.
func spread(n int) uint64 { return leaparray.CleanHash(uint64(n+1) * 0x9e3779b97f4a7c15) }

// sighting is a value that was seen at a time.
type sighting struct {
	hash uint64
	at   int64
}

// countWith counts the values of a window without and with further ones.
func countWith(v leaparray.ValuesView, after, until int64,
	more []uint64) (without, with leaparray.ValueCount) {
	return v.CountWith(after, until, more, v.AppendSeen(nil, more))
}

// TestValuesAgainstALog compares the values that several lists have together with a log of all that
// was seen: in windows that end now exactly, in earlier ones by their bounds.
func TestValuesAgainstALog(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var lists [3]leaparray.ValueList
		var log []sighting
		last, now := map[uint64]int64{}, int64(valuesNow)
		for range 300 {
			l := &lists[rnd.IntN(len(lists))]
			now += rnd.Int64N(300)
			switch rnd.IntN(12) {
			case 0:
				*l = merge(*l, lists[rnd.IntN(len(lists))])
			case 1:
				*l = prune(*l, now-valuesSpan)
			default:
				s := sighting{spread(rnd.IntN(60)), now - rnd.Int64N(valuesSpan/2)*rnd.Int64N(2)}
				*l = see(*l, s.at, now-valuesSpan, 1000, s.hash)
				log, last[s.hash] = append(log, s), max(last[s.hash], s.at)
			}
		}
		v := leaparray.ValuesView{A: merge(lists[0], lists[1]), B: lists[2]}
		for range 20 {
			window := 1 + rnd.Int64N(valuesSpan/2)
			at := now - rnd.Int64N(valuesSpan/2)*rnd.Int64N(2)
			have := map[uint64]bool{}
			for _, s := range log {
				have[s.hash] = have[s.hash] || s.at > at-window && s.at <= at
			}
			want, exact := int64(0), at == now
			for _, in := range have {
				if in {
					want++
				}
			}
			got := v.Count(at-window, at)
			if got.Min > want || got.Max < want || got.Count < got.Min || got.Count > got.Max ||
				got.Error != 0 || exact && (got.Min != want || got.Max != want) {
				t.Fatalf("seed %d, %d ms until %d ms ago: %+v, want %d", seed, window, now-at, got,
					want)
			}
			more := []uint64{spread(3), spread(70)}
			slices.Sort(more)
			if _, with := countWith(v, at-window, at, more); exact {
				have[more[0]], have[more[1]] = true, true
				n := int64(0)
				for _, in := range have {
					n += map[bool]int64{true: 1}[in]
				}
				if with.Count != n {
					t.Fatalf("seed %d: with 2 more %+v, want %d", seed, with, n)
				}
			}
		}
	}
}

// TestMergeOfValuesIsIdempotentCommutativeAndAssociative merges lists in different orders, with and
// without samples. A view of two lists reads their merger.
func TestMergeOfValuesIsIdempotentCommutativeAndAssociative(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		var list [3]leaparray.ValueList
		for k := range list {
			for range rnd.IntN(40) {
				hash := leaparray.CleanHash(rnd.Uint64N(50)<<57 | rnd.Uint64N(4))
				list[k] = see(list[k], rnd.Int64N(90)+1, 0, 8+i%2*1000, hash)
			}
		}
		a, b, c := list[0], list[1], list[2]
		want := merge(nil, a, b, c)
		if !slices.Equal(merge(nil, c, b, a), want) ||
			!slices.Equal(merge(nil, a, merge(nil, b, c)), want) ||
			!slices.Equal(merge(nil, a, b, c, b, a, c), want) {
			t.Fatal("the order matters")
		}
		v := leaparray.ValuesView{A: a, B: merge(nil, b, c)}
		for range 5 {
			after := rnd.Int64N(60)
			until := after + rnd.Int64N(60)
			got := v.Count(after, until)
			merged := leaparray.ValuesView{B: want}.Count(after, until)
			if got != merged || v.Latest() != want.Latest() {
				t.Fatalf("%+v, as one list %+v", got, merged)
			}
		}
	}
}

// TestEstimatesKeepTheirError counts more values than a list keeps, in two lists that have seen
// different parts.
func TestEstimatesKeepTheirError(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, values := range []int{3000, 10_000, 100_000, 1_000_000} {
		rounds := min(200, 2_000_000/values)
		squares, stated, inside := 0.0, 0.0, 0
		for range rounds {
			var lists [2]leaparray.ValueList
			for from := 0; from < values; from += 500 {
				part := make([]uint64, 500)
				for i := range part {
					part[i] = leaparray.CleanHash(rnd.Uint64())
				}
				slices.Sort(part)
				l, most := &lists[from/500%2], leaparray.DefaultMostValues>>(from/500%2*2)
				*l = prune(see(*l, valuesNow, 0, most, part...), 0)
				if n := (leaparray.ValuesView{A: *l}).Len(); n > most {
					t.Fatalf("it has %d values", n)
				}
			}
			c := leaparray.ValuesView{A: lists[0], B: lists[1]}.Count(0, math.MaxInt64)
			off := float64(c.Count)/float64(values) - 1
			squares, stated = squares+off*off, stated+c.Error*c.Error
			if c.Min <= int64(values) && int64(values) <= c.Max {
				inside++
			}
			if off > 6*c.Error || off < -6*c.Error {
				t.Errorf("%d values: %+v", values, c)
			}
		}
		n := float64(rounds)
		rms, says := math.Sqrt(squares/n), math.Sqrt(stated/n)
		t.Logf("%8d values, %3d times: standard error %.2f %%, stated %.2f %%, %.0f %% within the "+
			"bounds", values, rounds, 100*rms, 100*says, 100*float64(inside)/n)
		if rounds > 20 && (rms > 1.3*says || float64(inside) < 0.88*n) {
			t.Errorf("%d values: the error is %.4f, stated is %.4f", values, rms, says)
		}
	}
}

// TestAWindowIsExactAgain counts windows that begin before and after values were left out.
func TestAWindowIsExactAgain(t *testing.T) {
	var l leaparray.ValueList
	for i := range 1000 {
		l = see(l, 1000, 0, 100, spread(i))
	}
	if c := countAll(l); c.Error == 0 || c.Count < 500 || c.Count > 2000 {
		t.Fatalf("%+v", c)
	}
	for i := range 60 {
		l = see(l, 2000, 1000, 100, spread(i))
	}
	c := leaparray.ValuesView{A: l}.Count(1000, math.MaxInt64)
	if c != (leaparray.ValueCount{Min: 60, Count: 60, Max: 60}) {
		t.Errorf("%+v, want exactly 60", c)
	}
	if l = prune(l, 1000); l.Len() != 60 || countAll(l) != c {
		t.Errorf("%d are left, %+v", l.Len(), countAll(l))
	}
}

// TestRoomForValues refuses values, and checks when they fit: not a millisecond before the reported
// time, and then they do.
func TestRoomForValues(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		var v leaparray.ValuesView
		for range 20 {
			v.A = v.A.With(spread(rnd.IntN(30)), valuesNow-rnd.Int64N(1000))
			v.B = v.B.With(spread(rnd.IntN(30)), valuesNow-rnd.Int64N(1000))
		}
		var more []uint64
		for range 1 + rnd.IntN(6) {
			more = append(more, spread(rnd.IntN(40)))
		}
		slices.Sort(more)
		more = slices.Compact(more)
		window, most := 1+rnd.Int64N(1000), rnd.Int64N(30)
		fits := func(now int64) bool {
			_, with := countWith(v, now-window, math.MaxInt64, more)
			return with.Count <= most
		}
		after := v.RetryAfter(window, most, valuesNow, more)
		switch {
		case fits(valuesNow):
		case int64(len(more)) > most:
			if after != -1 {
				t.Errorf("seed %d: %d ms for what never fits", seed, after)
			}
		case after < 1 || fits(valuesNow+after-1) || !fits(valuesNow+after):
			t.Errorf("seed %d: it does not begin to fit after %d ms", seed, after)
		}
	}
}

func BenchmarkValues(b *testing.B) {
	for _, n := range []int{10, 4000} {
		var v leaparray.ValuesView
		rnd := rand.New(rand.NewPCG(10, 11))
		for range n {
			v.A = v.A.With(leaparray.CleanHash(rnd.Uint64()), valuesNow)
		}
		more := []uint64{spread(7)}
		b.Run(fmt.Sprint("count/", n), func(b *testing.B) {
			for b.Loop() {
				countWith(v, valuesNow-10, math.MaxInt64, more)
			}
		})
		b.Run(fmt.Sprint("refuse/", n), func(b *testing.B) {
			for b.Loop() {
				v.RetryAfter(10, int64(n), valuesNow, more)
			}
		})
		b.Run(fmt.Sprint("see/", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				v.See([]uint64{leaparray.CleanHash(rnd.Uint64())}, valuesNow, 0, n,
					func(uint64, int64) {})
			}
		})
	}
}
