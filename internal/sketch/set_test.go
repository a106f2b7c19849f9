package sketch_test

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/internal/sketch"
)

// most bounds the values of TestAccuracy. The test for every change measures a part.
var most = flag.Int64("values", 100_000, "how many different values to count at most")

func countOf(s *sketch.Set) (n int64, relative float64) {
	var u sketch.Union
	u.Add(s)
	return u.Count()
}

// TestAccuracy compares counts of 10, 100, 1,000, ... random values with the truth. An error of six
// standard errors would occur once in five hundred million samples, and these are the same ones
// each time.
func TestAccuracy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for values := int64(10); values <= *most; values *= 10 {
		samples := max(10, min(100, 10_000_000/values))
		sum, squares, worst := 0.0, 0.0, 0.0
		for range samples {
			var s sketch.Set
			for range values {
				s.Add(random.Uint64())
			}
			n, relative := countOf(&s)
			off := float64(n-values) / float64(values)
			switch {
			case values <= sketch.MaxExact && (n != values || relative != 0):
				t.Errorf("%d values: %d, with an error of %v", values, n, relative)
			case values > sketch.MaxExact && relative != sketch.Error:
				t.Errorf("%d values: an error of %v, want %v", values, relative, sketch.Error)
			case math.Abs(off) > 6*sketch.Error:
				t.Errorf("%d values: %d", values, n)
			}
			sum, squares, worst = sum+off, squares+off*off, max(worst, math.Abs(off))
		}
		n := float64(samples)
		t.Logf("%9d values, %3d samples: standard error %.2f %%, mean %+.2f %%, worst %.2f %%; "+
			"stated %.2f %%", values, samples, 100*math.Sqrt(squares/n), 100*sum/n, 100*worst,
			100*relativeOf(values))
		if rms := math.Sqrt(squares / n); samples >= 50 && rms > 1.5*sketch.Error {
			t.Errorf("%d values: a standard error of %.4f, stated is %.4f", values, rms,
				sketch.Error)
		}
	}
}

func relativeOf(values int64) float64 {
	if values <= sketch.MaxExact {
		return 0
	}
	return sketch.Error
}

// setOf returns a set of n random hashes.
func setOf(random *rand.Rand, n int) (s sketch.Set) {
	for range n {
		s.Add(random.Uint64())
	}
	return s
}

func encoded(s *sketch.Set) string { return string(s.Append(nil)) }

// TestMergeIsIdempotentCommutativeAndAssociative merges sets of all kinds in several ways, and
// compares the bytes.
func TestMergeIsIdempotentCommutativeAndAssociative(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	sizes := []int{0, 1, 40, sketch.MaxExact - 1, sketch.MaxExact, sketch.MaxExact + 1, 5000}
	merged := func(sets ...sketch.Set) string {
		var sum sketch.Set
		for i := range sets {
			sum.Merge(&sets[i])
		}
		return encoded(&sum)
	}
	for _, x := range sizes {
		for _, y := range sizes {
			a, b, c := setOf(random, x), setOf(random, y), setOf(random, x/2)
			want := merged(a, b, c)
			if merged(c, b, a) != want || merged(a, b, c, b, a, c) != want {
				t.Fatalf("%d and %d values: the order matters", x, y)
			}
			bc := b.Clone()
			bc.Merge(&c)
			if merged(a, bc) != want {
				t.Fatalf("%d and %d values: what is merged first matters", x, y)
			}
			if bc.Merge(&c) || bc.Merge(&b) {
				t.Fatalf("%d and %d values: merged again, it changed", x, y)
			}
			before := encoded(&b)
			if merged(a, b); encoded(&b) != before {
				t.Fatal("merging changed what was merged")
			}
		}
	}
}

// TestMergeSeesWhatAddSees compares a merged set with one to which every value was added.
func TestMergeSeesWhatAddSees(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{3, 300, 600, 3000} {
		var all, first, second sketch.Set
		for i := range n {
			h := random.Uint64()
			all.Add(h)
			if i%3 > 0 {
				first.Add(h)
			}
			if i%3 < 2 {
				second.Add(h)
			}
		}
		first.Merge(&second)
		if encoded(&first) != encoded(&all) {
			t.Errorf("%d values: merged they are not what they are together", n)
		}
	}
}

// TestUnionIsExactWhileItCan counts values that occur in many sets.
func TestUnionIsExactWhileItCan(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	seen := map[uint64]bool{}
	var u sketch.Union
	for len(seen) <= sketch.MaxUnion-300 {
		var s sketch.Set
		for range 200 {
			h := sketch.Hash(9, binary.LittleEndian.AppendUint16(nil, uint16(random.IntN(1<<16))))
			s.Add(h)
			seen[h] = true
		}
		u.Add(&s)
		if n, relative := u.Count(); n != int64(len(seen)) || relative != 0 {
			t.Fatalf("%d with an error of %v, want exactly %d", n, relative, len(seen))
		}
	}
	for range 2 * sketch.MaxUnion {
		h := random.Uint64()
		u.AddHashes([]uint64{h})
		seen[h] = true
	}
	n, relative := u.Count()
	if off := math.Abs(float64(n)/float64(len(seen)) - 1); relative != sketch.Error ||
		off > 6*sketch.Error {
		t.Errorf("%d with an error of %v, want about %d", n, relative, len(seen))
	}
	u.Reset()
	if n, relative := u.Count(); n != 0 || relative != 0 {
		t.Errorf("empty: %d with an error of %v", n, relative)
	}
}

// TestSnapshotCountsAsAUnion adds some hashes to the count of a snapshot and to a union, and
// compares their counts around the sizes at which a union becomes inexact. The snapshot stays
// unchanged.
func TestSnapshotCountsAsAUnion(t *testing.T) {
	random := rand.New(rand.NewPCG(14, 15))
	sizes := []int{0, 1, 300, sketch.MaxUnion - 5, sketch.MaxUnion, sketch.MaxUnion + 1, 9000}
	for _, n := range sizes {
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = random.Uint64()
		}
		var u sketch.Union
		u.AddHashes(hashes)
		s := u.Snapshot()
		if s.Bytes() != u.Bytes() {
			t.Errorf("%d hashes: it takes %d bytes, not %d", n, s.Bytes(), u.Bytes())
		}
		for range 15 {
			var more []uint64
			for range random.IntN(12) {
				h := random.Uint64()
				switch k := random.IntN(4); {
				case k == 0 && n > 0:
					h = hashes[random.IntN(n)]
				case k == 1 && len(more) > 0: // the same again, or in the same register
					h = more[0] &^ (1 << random.IntN(40))
				}
				more = append(more, h)
			}
			var want sketch.Union
			want.AddHashes(hashes)
			want.AddHashes(more)
			values, relative := want.Count()
			if got, gotError := s.Count(more); got != values || gotError != relative {
				t.Fatalf("%d and %x: %d (%v), want %d (%v)", n, more, got, gotError, values,
					relative)
			}
			if exact, ok := want.Exact(); ok != (relative == 0) || ok && exact != values {
				t.Fatalf("%d values: %d is exact: %v", values, exact, ok)
			}
		}
	}
}

// TestDecode decodes encoded sets, and refuses any other bytes.
func TestDecode(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 11))
	for _, n := range []int{0, 1, sketch.MaxExact, 5000} {
		s := setOf(random, n)
		got, err := sketch.Decode(s.Append(nil))
		if err != nil || encoded(&got) != encoded(&s) {
			t.Errorf("%d values: %v", n, err)
		}
	}
	registers := setOf(random, 600)
	large := registers.Append(nil)
	large[9] = 200
	for name, text := range map[string]string{
		"nothing": "", "another format": "x", "part of a hash": "e1234567",
		"no order": "e2222222211111111", "twice": "e1111111111111111",
		"part of the registers": string(large[:100]), "a rank that can't be": string(large),
	} {
		if _, err := sketch.Decode([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestHashDependsOnTheSeed checks that the hashes of one installation reveal nothing about another.
func TestHashDependsOnTheSeed(t *testing.T) {
	first := sketch.Hash(1, []byte("a"))
	if first == sketch.Hash(2, []byte("a")) || first == sketch.Hash(1, []byte("b")) ||
		first != sketch.Hash(1, []byte("a")) {
		t.Error("hashes don't depend on value and seed alone")
	}
}

func BenchmarkAdd(b *testing.B) {
	var s sketch.Set
	h := uint64(1)
	for b.Loop() {
		h = h*6364136223846793005 + 1442695040888963407
		s.Add(h)
	}
}

func BenchmarkUnionOfADay(b *testing.B) {
	random := rand.New(rand.NewPCG(12, 13))
	sets := make([]sketch.Set, 96)
	for i := range sets {
		sets[i] = setOf(random, 3000)
	}
	var u sketch.Union
	for b.Loop() {
		u.Reset()
		for i := range sets {
			u.Add(&sets[i])
		}
		u.Count()
	}
}
