package leaparray_test

import (
	"bytes"
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

// sighting is a value that was seen at a time.
type sighting struct {
	hash uint64
	at   int64
}

// copies are copies of the values of one key, and a log of all that was seen.
type copies struct {
	*testing.T
	rnd  *rand.Rand
	all  []leaparray.Values
	log  []sighting
	void int64 // the time of the last reset
	now  int64
}

// newest returns when each value of the log was last seen since the last reset.
func (c *copies) newest() map[uint64]int64 {
	last := map[uint64]int64{}
	for _, s := range c.log {
		if s.at > c.void {
			last[s.hash] = max(last[s.hash], s.at)
		}
	}
	return last
}

// step sees a value in a copy, makes a reset, or merges one copy into another, as it is or by its
// chunks.
func (c *copies) step() {
	v := &c.all[c.rnd.IntN(len(c.all))]
	c.now += c.rnd.Int64N(300)
	switch c.rnd.IntN(12) {
	case 0:
		from := &c.all[c.rnd.IntN(len(c.all))]
		v.Merge(from, math.MaxInt)
	case 1:
		from := &c.all[c.rnd.IntN(len(c.all))]
		decoded, err := leaparray.DecodeValues(from.AppendChanged(nil, math.MaxUint64))
		if err != nil {
			c.Fatal(err)
		}
		v.Merge(&decoded, math.MaxInt)
	case 2:
		v.Prune(c.now-valuesSpan, math.MaxInt)
	case 3:
		if c.rnd.IntN(10) == 0 {
			c.void = c.now
			v.Forget(c.now)
		}
	default:
		hash := uint64(c.rnd.IntN(60)+1) * 0x9e3779b97f4a7c15
		at := c.now - c.rnd.Int64N(valuesSpan/2)*c.rnd.Int64N(2)
		if v.See(hash, at, math.MaxInt) || at <= c.void {
			c.log = append(c.log, sighting{hash, at})
		}
	}
}

// TestValuesAgainstALog compares the values that several copies have together with a log of all
// that was seen: in windows that end now exactly, in earlier ones by their bounds.
func TestValuesAgainstALog(t *testing.T) {
	for seed := range uint64(200) {
		c := &copies{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), all: make([]leaparray.Values, 3),
			now: valuesNow}
		for range 300 {
			c.step()
		}
		var v leaparray.Values
		for i := range c.all {
			v.Merge(&c.all[i], math.MaxInt)
		}
		last := c.newest()
		for range 20 {
			window := 1 + c.rnd.Int64N(valuesSpan/2)
			at := c.now - c.rnd.Int64N(valuesSpan/2)*c.rnd.Int64N(2)
			have, certain := map[uint64]bool{}, int64(0)
			for _, s := range c.log {
				if s.at > at-window && s.at <= at && s.at > c.void {
					if have[s.hash] = true; last[s.hash] <= at && s.at == last[s.hash] {
						certain++
					}
				}
			}
			got, want := v.Count(at-window, at, nil), int64(len(have))
			exact := at == c.now
			if got.Min > want || got.Max < want || got.Count < got.Min || got.Count > got.Max ||
				got.Error != 0 || exact && (got.Min != want || got.Max != want) {
				t.Fatalf("seed %d, %d ms until %d ms ago: %+v, want %d", seed, window, c.now-at,
					got, want)
			}
		}
	}
}

func encodedValues(v *leaparray.Values) string {
	return string(v.AppendChanged(nil, math.MaxUint64))
}

// TestMergeOfValuesIsIdempotentCommutativeAndAssociative merges copies in different orders, with
// and without resets and samples. What is left out does depend on where a sample is made, but not
// on the order of what comes into it.
func TestMergeOfValuesIsIdempotentCommutativeAndAssociative(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	merged := func(list ...leaparray.Values) string {
		var sum leaparray.Values
		for i := range list {
			sum.Merge(&list[i], math.MaxInt)
		}
		return encodedValues(&sum)
	}
	for i := range 300 {
		var list [3]leaparray.Values
		most := 8 + i%2*1000
		for i := range list {
			for range rnd.IntN(40) {
				list[i].See(rnd.Uint64N(50)<<57|rnd.Uint64N(4), rnd.Int64N(90)+1, most)
			}
			if rnd.IntN(3) == 0 {
				list[i].Forget(rnd.Int64N(60))
			}
		}
		a, b, c := list[0], list[1], list[2]
		want := merged(a, b, c)
		if merged(c, b, a) != want || merged(a, b, c, b, a, c) != want {
			t.Fatal("the order matters")
		}
		if most < 1000 {
			continue
		}
		bc := b.Clone()
		bc.Merge(&c, math.MaxInt)
		if merged(a, bc) != want {
			t.Fatal("what is merged first matters")
		}
		if bc.Merge(&c, math.MaxInt) || bc.Merge(&b, math.MaxInt) {
			t.Fatal("merged again, it changed")
		}
	}
}

// TestChangedChunksAreEnough passes only changed chunks from copy to copy: they end up equal.
func TestChangedChunksAreEnough(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var a, b leaparray.Values
	for i := range 2000 {
		switch n := rnd.IntN(20); {
		case n == 0:
			a.Forget(int64(i - rnd.IntN(400)))
		default:
			a.See(rnd.Uint64()>>rnd.IntN(3), int64(i+1), 100)
		}
		if rnd.IntN(5) > 0 {
			continue
		}
		changed := a.Changed()
		a.SetChanged(0)
		if err := b.MergeHead(a.AppendHead(nil)); err != nil {
			t.Fatal(err)
		}
		for chunk := range leaparray.ValueChunks {
			if changed>>chunk&1 == 1 {
				if err := b.MergeChunk(a.AppendChunk(nil, chunk), math.MaxInt); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, after := range []int64{0, int64(i / 2)} {
			want, got := a.Count(after, math.MaxInt64, nil), b.Count(after, math.MaxInt64, nil)
			if got != want {
				t.Fatalf("after %d: %+v, want %+v", after, got, want)
			}
		}
	}
}

// TestEstimatesKeepTheirError counts more values than a copy holds, in one copy and in two that
// have seen different parts.
func TestEstimatesKeepTheirError(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, values := range []int{3000, 10_000, 100_000, 1_000_000} {
		rounds := min(200, 2_000_000/values)
		squares, stated, inside := 0.0, 0.0, 0
		for range rounds {
			var a, b leaparray.Values
			for i := range values {
				hash := rnd.Uint64()
				if i%3 < 2 {
					a.See(hash, valuesNow, leaparray.DefaultMostValues)
				} else {
					b.See(hash, valuesNow, leaparray.DefaultMostValues/4)
				}
			}
			a.Merge(&b, leaparray.DefaultMostValues)
			if n := a.Len(); n > leaparray.DefaultMostValues {
				t.Fatalf("it holds %d values", n)
			}
			c := a.Count(0, math.MaxInt64, nil)
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
	var v leaparray.Values
	for i := range uint64(1000) {
		v.See(i*0x9e3779b97f4a7c15, 1000, 100)
	}
	if c := v.Count(0, math.MaxInt64, nil); c.Error == 0 || c.Count < 500 || c.Count > 2000 {
		t.Fatalf("%+v", c)
	}
	for range 20 { // it notices that there is room
		v.Prune(1000, 100)
	}
	for i := range uint64(60) {
		v.See(i*0x9e3779b97f4a7c15, 2000, 100)
	}
	if c := v.Count(1000, math.MaxInt64, nil); c != (leaparray.ValueCount{Min: 60, Count: 60,
		Max: 60}) {
		t.Errorf("%+v, want exactly 60", c)
	}
}

// TestRoomForValues refuses values, and checks when they fit: not a millisecond before the reported
// time, and then they do.
func TestRoomForValues(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		var v leaparray.Values
		for range 40 {
			v.See(rnd.Uint64N(30), valuesNow-rnd.Int64N(1000), 100)
		}
		var more []uint64
		for range 1 + rnd.IntN(6) {
			more = append(more, rnd.Uint64N(40))
		}
		slices.Sort(more)
		more = slices.Compact(more)
		window, most := 1+rnd.Int64N(1000), rnd.Int64N(30)
		fits := func(now int64) bool {
			return v.Count(now-window, math.MaxInt64, more).Count <= most
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

// TestWhatIsNotAnEncodedValue decodes what no copy has encoded.
func TestWhatIsNotAnEncodedValue(t *testing.T) {
	var v leaparray.Values
	v.See(5, 1, 9)
	v.See(1<<60, 1, 9)
	good := v.AppendChanged(nil, math.MaxUint64)
	if _, err := leaparray.DecodeValues(good); err != nil {
		t.Fatal(err)
	}
	swapped := slices.Concat(good[:1], good[15:], good[1:15])
	for name, data := range map[string][]byte{
		"nothing": nil, "a part": good[:20], "no head": {9, 1}, "no order": swapped,
		"twice": slices.Concat(good[:15], good[1:15]),
	} {
		if _, err := leaparray.DecodeValues(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if v.MergeHead([]byte{1}) == nil || v.MergeChunk([]byte{1}, 9) == nil {
		t.Error("no error")
	}
	if !bytes.Equal(v.AppendChanged(nil, math.MaxUint64), good) {
		t.Error("it has changed")
	}
}

// TestValuesGiveMemoryBack sees many values, and then few.
func TestValuesGiveMemoryBack(t *testing.T) {
	var v leaparray.Values
	for i := range uint64(4000) {
		v.See(i<<50|1, int64(i+1), 5000)
	}
	full := v.Bytes()
	v.Prune(3900, 5000)
	if v.Len() != 100 || v.Bytes() > full/10 {
		t.Errorf("%d values use %d bytes, 4000 used %d", v.Len(), v.Bytes(), full)
	}
}

func BenchmarkValues(b *testing.B) {
	for _, n := range []int{10, 4000} {
		var v leaparray.Values
		rnd := rand.New(rand.NewPCG(10, 11))
		for range n {
			v.See(rnd.Uint64(), valuesNow, 5000)
		}
		more := []uint64{7}
		b.Run(fmt.Sprint("count/", n), func(b *testing.B) {
			for b.Loop() {
				v.Count(valuesNow-10, math.MaxInt64, more)
			}
		})
		b.Run(fmt.Sprint("refuse/", n), func(b *testing.B) {
			for b.Loop() {
				v.RetryAfter(10, int64(n), valuesNow, more)
			}
		})
		b.Run(fmt.Sprint("see/", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				v.See(rnd.Uint64(), valuesNow, n)
			}
		})
	}
}
