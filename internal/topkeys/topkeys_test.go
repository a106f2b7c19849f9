package topkeys_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/topkeys"
)

const noon = 1_763_000_000_000

// counted is a source that reports, in the count of its first row, how often it was asked.
type counted struct {
	asked int64
	fails error
}

func (c *counted) top(context.Context, string, int,
	int64) ([]twotier.KeyCount, error) {
	c.asked++
	return []twotier.KeyCount{{Key: "k", Count: c.asked}, {Key: "l"}}, c.fails
}

// TestCacheAsksOnceASecond checks that the source is asked once a second, and earlier only for
// another window or for more rows.
func TestCacheAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := new(counted)
		c := topkeys.NewCache(source.top)
		for _, step := range []struct {
			wait   time.Duration
			n      int
			window int64
			asked  int64
			rows   int
		}{
			{0, 2, 60_000, 1, 2},
			{999 * time.Millisecond, 1, 60_000, 1, 1}, // fewer rows of the same answer
			{time.Millisecond, 1, 60_000, 2, 1},
			{0, 2, 60_000, 3, 2},
			{0, 2, 30_000, 4, 2},
		} {
			time.Sleep(step.wait)
			rows, err := c.Top(t.Context(), "", step.n, step.window)
			if err != nil || len(rows) != step.rows || rows[0].Count != step.asked {
				t.Errorf("%+v: %v, %v", step, rows, err)
			}
			rows[0].Count = -1 // the caller's: the next answer does not show it
		}
	})
}

// TestCacheKeepsTwoAnswers alternates between all keys and the keys with a prefix: the source is
// asked once for each, and again for another prefix.
func TestCacheKeepsTwoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := topkeys.NewCache(new(counted).top)
		for i, prefix := range []string{"", "k", "", "k", "l", "k", ""} {
			rows, err := c.Top(t.Context(), prefix, 1, 60_000)
			want := []int64{1, 2, 1, 2, 3, 4, 1}[i]
			if err != nil || rows[0].Count != want {
				t.Errorf("%d, %q: %v, %v, want %d", i, prefix, rows, err, want)
			}
		}
	})
}

// TestCacheKeepsNoError checks that an error is not cached, and that an earlier answer is not
// passed off as new.
func TestCacheKeepsNoError(t *testing.T) {
	source := &counted{fails: errors.New("closed")}
	c := topkeys.NewCache(source.top)
	if rows, err := c.Top(t.Context(), "", 1, 1); err == nil || rows != nil {
		t.Errorf("%v, %v, want the error", rows, err)
	}
	source.fails = nil
	if rows, err := c.Top(t.Context(), "", 1, 1); err != nil || rows[0].Count != 2 {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestLargest(t *testing.T) {
	rows := []twotier.KeyCount{
		{NS: "b", Key: "k", Count: 2}, {NS: "a", Key: "l", Count: 2}, {NS: "a", Key: "k", Count: 2},
		{NS: "z", Key: "z", Count: 3},
	}
	want := []twotier.KeyCount{rows[3], rows[2], rows[1]}
	if got := topkeys.Largest(rows, 3); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func check(key string, n int64) *twotier.Check { return &twotier.Check{Key: []byte(key), N: n} }

// TestSampleCountsInWindows adds in two minutes: the window has only the keys of the last one.
func TestSampleCountsInWindows(t *testing.T) {
	s := topkeys.NewSample()
	s.Add(check("old", 9), noon-120_000)
	s.Add(check("a", 1), noon)
	s.Add(check("b", 2), noon)
	s.Add(check("b", -1), noon) // a negative count changes nothing
	s.Add(&twotier.Check{NS: []byte(twotier.DefaultNamespace), Key: []byte("a"), N: 2}, noon)
	for _, test := range []struct {
		window int64
		want   string
	}{
		{60_000, "[{default a 3} {default b 2}]"},
		{600_000, "[{default old 9} {default a 3} {default b 2}]"},
	} {
		rows, err := s.Top("", 9, test.window, noon)
		if err != nil || fmt.Sprint(rows) != test.want {
			t.Errorf("window %d: %v, %v, want %s", test.window, rows, err, test.want)
		}
	}
	for _, window := range []int64{0, -1, 26 * 3_600_000} {
		if _, err := s.Top("", 9, window, noon); !errors.As(err, new(*twotier.InvalidError)) {
			t.Errorf("window %d: %v, want it refused", window, err)
		}
	}
}

// TestSampleKeepsTheBusiest among many more keys than it has room for.
func TestSampleKeepsTheBusiest(t *testing.T) {
	s := topkeys.NewSample()
	for i := range 20_000 {
		s.Add(check("busy", 1), noon)
		s.Add(check(fmt.Sprint(i), 1), noon)
	}
	rows, err := s.Top("", 100_000, 60_000, noon)
	if err != nil || len(rows) != 4096 {
		t.Fatalf("%d rows, %v, want 4096", len(rows), err)
	}
	if rows[0].Key != "busy" || rows[0].Count != 20_000 {
		t.Errorf("the busiest is %v", rows[0])
	}
}

// TestSampleLeavesOutCompanions adds a ban and a lease, which settlements may count.
func TestSampleLeavesOutCompanions(t *testing.T) {
	s := topkeys.NewSample()
	for _, kind := range []twotier.CheckKind{twotier.BanCheck, twotier.LeaseCheck} {
		c := check("k", 1)
		c.Kind = kind
		s.Add(c, noon)
	}
	if rows, err := s.Top("", 9, 60_000, noon); err != nil || len(rows) > 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

// refusedAt returns a Refused with a clock, which begins at noon.
func refusedAt() (*topkeys.Refused, *int64) {
	now := int64(noon)
	return topkeys.NewRefused(twotier.Refused, func() int64 { return now }), &now
}

// refuse records refusals of keys.
func refuse(r *topkeys.Refused, keys ...string) {
	for _, key := range keys {
		r.Record(&decisions.Decision{Key: []byte(key), Verdict: twotier.Refused})
	}
}

// TestRefusedCountsRefusals, and each key once in an acquire, whoever refused it.
func TestRefusedCountsRefusals(t *testing.T) {
	r, now := refusedAt()
	if !r.Receives(twotier.Refused) || r.Receives(twotier.ShadowRefused) ||
		r.Receives(twotier.Allowed) || r.Receives(twotier.Near) {
		t.Error("it receives others than refusals")
	}
	refuse(r, "a", "a")
	r.Record(&decisions.Decision{Key: []byte("a"), Repeated: true})
	r.Record(&decisions.Decision{NS: []byte("cards"), Key: []byte("b"), Distinct: true, N: 7})
	*now++
	refuse(r, "a")
	rows, err := r.Top(t.Context(), "", 9, 60_000)
	want := []twotier.KeyCount{{NS: "default", Key: "a", Count: 3},
		{NS: "cards", Key: "b", Count: 1}}
	if err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	rows, err = r.Top(t.Context(), "b", 9, 60_000)
	if err != nil || !slices.Equal(rows, want[1:]) {
		t.Errorf("with a prefix: %v, %v, want %v", rows, err, want[1:])
	}
}

// TestRefusedForgets checks that refusals outside of the window are gone once the cached answer is
// old.
func TestRefusedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, now := refusedAt()
		refuse(r, "k")
		for _, want := range []int{1, 0} {
			rows, err := r.Top(t.Context(), "", 9, 60_000)
			if err != nil || len(rows) != want {
				t.Errorf("%v, %v, want %d", rows, err, want)
			}
			*now += 120_000
			time.Sleep(time.Second)
		}
	})
}

// TestRefusedThinsOut sends far more concurrent refusals than are noted. The noted ones stand for
// all: the sum is right within seven standard deviations.
func TestRefusedThinsOut(t *testing.T) {
	r, _ := refusedAt()
	const refusals = 200_000
	for range refusals {
		refuse(r, "k")
	}
	rows, err := r.Top(t.Context(), "", 1, 60_000)
	if err != nil || len(rows) != 1 || rows[0].Count < refusals*88/100 ||
		rows[0].Count > refusals*112/100 {
		t.Errorf("%v, %v, want about %d", rows, err, refusals)
	}
	if rows[0].Count%64 != 200%64 {
		t.Errorf("%d is not 200 refusals and a multiple of 64: all were noted", rows[0].Count)
	}
}

// TestMergeByKey merges rows of the same key, and only those: into their sum, or the largest.
func TestMergeByKey(t *testing.T) {
	var rows []twotier.KeyCount
	for i := range 12 {
		rows = append(rows, twotier.KeyCount{NS: fmt.Sprint("n", i%2), Key: fmt.Sprint("k", i%3),
			Count: int64(i)})
	}
	most := topkeys.MaxByKey(slices.Clone(rows))
	if len(most) != 6 || most[1] != (twotier.KeyCount{NS: "n1", Key: "k1", Count: 7}) {
		t.Errorf("largest: %v", most)
	}
	got := topkeys.SumByKey(rows)
	if len(got) != 6 || got[0] != (twotier.KeyCount{NS: "n0", Key: "k0", Count: 6}) {
		t.Errorf("%v", got)
	}
}

// BenchmarkSample counts keys: one that is tracked, and a stream of new ones, each of which
// replaces another.
func BenchmarkSample(b *testing.B) {
	for name, keys := range map[string]int{"tracked": 1, "new": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			s := topkeys.NewSample()
			for i := range topkeys.MaxSampled {
				s.Add(check(strconv.Itoa(i), 1), noon)
			}
			c, now := check("k", 1), int64(noon)
			b.ReportAllocs()
			for b.Loop() {
				c.Key = strconv.AppendInt(c.Key[:0], int64(rand.IntN(keys)), 10)
				s.Add(c, now)
				now++
			}
		})
	}
}
