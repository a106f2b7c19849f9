package topkeys_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/topkeys"
)

// refusedAt returns a Refused with a clock, which begins at noon.
func refusedAt(t *testing.T) (*topkeys.Refused, *int64) {
	t.Helper()
	now := int64(noon)
	r, err := topkeys.NewRefused(func() int64 { return now })
	must.Succeed(t, err)
	return r, &now
}

// acquire returns an acquire over keys, and its result: all keys that end in "!" refused.
func acquire(keys ...string) (twotier.Op, twotier.Result) {
	op, res := twotier.Op{Kind: twotier.Acquire}, twotier.Result{Allowed: true}
	for _, key := range keys {
		op.Checks = append(op.Checks, *check(key, 7))
		c := res.AddCheck()
		if c.Refused = key[len(key)-1] == '!'; c.Refused {
			res.Allowed = false
		}
	}
	return op, res
}

// TestRefusedCountsValues counts refused values together with acquires.
func TestRefusedCountsValues(t *testing.T) {
	r, now := refusedAt(t)
	op, res := acquire("a!")
	r.RecordOne(&op, &res)
	r.RecordKey(nil, []byte("a!"))
	r.RecordKey([]byte("cards"), []byte("b"))
	*now++
	r.RecordKey(nil, []byte("a!"))
	rows, err := r.Top(t.Context(), 9, 60_000)
	want := []twotier.KeyCount{{NS: "default", Key: "a!", Count: 3},
		{NS: "cards", Key: "b", Count: 1}}
	if err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
	rows, err = r.TopWithPrefix(t.Context(), "b", 9, 60_000)
	if err != nil || !slices.Equal(rows, want[1:]) {
		t.Errorf("with a prefix: %v, %v, want %v", rows, err, want[1:])
	}
}

// TestRefusedCountsRefusals checks that nothing else counts: neither successful requests nor the
// other keys of a refused acquire.
func TestRefusedCountsRefusals(t *testing.T) {
	r, now := refusedAt(t)
	var ops []twotier.Op
	var results []twotier.Result
	for _, keys := range [][]string{{"a"}, {"a!"}, {"a!", "b"}, {"b!", "c!"}, {"d!"}, {"e!"}} {
		op, res := acquire(keys...)
		ops, results = append(ops, op), append(results, res)
	}
	ops[4].DryRun = true
	results[5].Err = errors.New("a test asked for it")
	r.Record(ops, results)
	*now++
	add := twotier.Op{Kind: twotier.Add, Checks: ops[1].Checks} // over its limit, but counted
	r.RecordOne(&add, &results[1])
	r.RecordOne(&ops[4], &results[4])
	r.RecordOne(&ops[1], &results[1])
	rows, err := r.Top(t.Context(), 9, 60_000)
	want := []twotier.KeyCount{{NS: "default", Key: "a!", Count: 3},
		{NS: "default", Key: "b!", Count: 1}, {NS: "default", Key: "c!", Count: 1}}
	if err != nil || !slices.Equal(rows, want) {
		t.Errorf("%v, %v, want %v", rows, err, want)
	}
}

// TestRefusedForgets checks that refusals outside of the window are gone once the cached answer is
// old.
func TestRefusedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, now := refusedAt(t)
		op, res := acquire("k!")
		r.RecordOne(&op, &res)
		for _, want := range []int{1, 0} {
			rows, err := r.Top(t.Context(), 9, 60_000)
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
	r, _ := refusedAt(t)
	const refusals = 200_000
	op, res := acquire("k!")
	for range refusals {
		r.RecordOne(&op, &res)
	}
	rows, err := r.Top(t.Context(), 1, 60_000)
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
