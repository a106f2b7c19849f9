package arithmetic_test

import (
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier/bench/arithmetic"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

func methods(t *testing.T) map[string]arithmetic.Method {
	t.Helper()
	ladder, err := arithmetic.Ladder("ladder", leaparray.DefaultExact,
		leaparray.DefaultLevels()...)
	must.Succeed(t, err)
	all := map[string]arithmetic.Method{ladder.Name: ladder}
	for _, m := range arithmetic.Others() {
		all[m.Name] = m
	}
	return all
}

// TestWorked allows at most ten in any minute: nine come at 0:50, and then one after the other.
func TestWorked(t *testing.T) {
	for name, want := range map[string][]bool{
		// at 0:59, 1:01 (nine in the last minute), 1:20, 1:20, 1:51
		"ladder":                      {true, false, false, false, true},
		"sub-windows, last n":         {true, false, false, false, true},
		"two fixed windows, weighted": {true, false, true, true, true},
		"fixed window":                {true, true, true, true, true},
		"token bucket (GCRA)":         {true, true, true, true, true},
	} {
		w := methods(t)[name].New(60_000, 10)
		for range 9 {
			if !w.Fits(50_000) {
				t.Fatalf("%s: one of the first nine is refused", name)
			}
			w.Count(50_000)
		}
		for i, ts := range []int64{59_000, 61_000, 80_000, 80_000, 111_000} {
			got := w.Fits(ts)
			if got {
				w.Count(ts)
			}
			if got != want[i] {
				t.Errorf("%s at %d ms: fits %t", name, ts, got)
			}
		}
	}
}

// TestReads reads all Readers at every event. The ladder's bounds hold everywhere.
func TestReads(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const length = 37_000
	for name, m := range methods(t) {
		w, ok := m.New(length, 1).(arithmetic.Reader)
		if !ok {
			if name != "token bucket (GCRA)" {
				t.Errorf("%s does not read", name)
			}
			continue
		}
		var times []int64
		ts := int64(1_700_000_000_000)
		for range 5000 {
			ts += r.Int64N(400)
			w.Count(ts)
			times = append(times, ts)
			truth := int64(0)
			for i := len(times) - 1; i >= 0 && times[i] > ts-length; i-- {
				truth++
			}
			e := w.Read(ts)
			if e.Bounded != (name == "ladder") || e.Bounded &&
				(truth < e.Min || truth > e.Max || e.Events < e.Min || e.Events > e.Max) {
				t.Fatalf("%s at %d: %+v, the truth is %d", name, ts, e, truth)
			}
			if name == "fixed window" && e.Events > truth {
				t.Fatalf("%s at %d: %d, the truth is %d", name, ts, e.Events, truth)
			}
		}
	}
}
