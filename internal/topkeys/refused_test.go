package topkeys_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/topkeys"
)

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
