package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// idsOf returns the ids in each of the slots, which it visits in their order, some ids at a time.
func idsOf(t *testing.T, d *redisstore.Deadlines, slots ...int64) [][]string {
	t.Helper()
	all, at := make([][]string, len(slots)), 0
	must.Succeed(t, d.Deadlines(t.Context(), slots, func(slot int64, ids []string) {
		if i := slices.Index(slots, slot); i < at || len(ids) > 2000 {
			t.Errorf("visits %d ids of slot %d after slot %d", len(ids), i, at)
		} else {
			all[i], at = append(all[i], ids...), i
		}
	}))
	return all
}

// TestOverdueDeadlinesAreReadInPages: a node that starts after a long pause reads all slots,
// however many ids they have, without holding up Redis or taking much memory.
func TestOverdueDeadlinesAreReadInPages(t *testing.T) {
	srv := redistest.Start(t)
	d := open(t, redisstore.Options{URL: srv.URL()}).Deadlines(time.Hour)
	slot, slots := time.Now().Add(time.Hour).UnixMilli(), []int64{}
	add := map[int64][]string{}
	for i := range 40 {
		slots = append(slots, slot+int64(i))
		for j := range 25 * i * i % 8000 {
			add[slots[i]] = append(add[slots[i]], fmt.Sprintf("%d-%d", i, j))
		}
	}
	must.Succeed(t, d.ChangeDeadlines(t.Context(), add, nil))
	for i, ids := range idsOf(t, d, slots...) {
		slices.Sort(ids)
		want := slices.Sorted(slices.Values(add[slots[i]]))
		if ids = slices.Compact(ids); !slices.Equal(ids, want) {
			t.Errorf("%d ids of slot %d, want %d", len(ids), i, len(want))
		}
	}
}

// TestDeadlines adds and removes ids in several slots. A slot expires by itself.
func TestDeadlines(t *testing.T) {
	srv := redistest.Start(t)
	const kept = 20 * time.Minute
	d := open(t, redisstore.Options{URL: srv.URL()}).Deadlines(kept)
	slot := time.Now().Add(time.Hour).UnixMilli()
	for range 2 { // repeated, because an answer was lost
		must.Succeed(t, d.ChangeDeadlines(t.Context(), map[int64][]string{slot: {"a", "b"},
			slot + 1: {"c"}, 1000: {"past"}}, map[int64][]string{slot: {"b"}, 7: {"none"}}))
	}
	must.Succeed(t, d.ChangeDeadlines(t.Context(), nil, map[int64][]string{slot + 1: {"c"}}))
	ids := idsOf(t, d, 1000, slot, slot+1)
	if len(ids) != 3 || ids[0] != nil || !slices.Equal(ids[1], []string{"a"}) || ids[2] != nil {
		t.Errorf("%v", ids)
	}
	keys, err := srv.Client(t).Keys(t.Context(), "tt:due:*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v, %v", keys, err)
	}
	ttl, err := srv.Client(t).PTTL(t.Context(), keys[0]).Result()
	if left := ttl - time.Hour - kept; err != nil || left < -time.Minute || left > time.Minute ||
		!strings.HasPrefix(keys[0], "tt:due:") {
		t.Errorf("%s expires in %v, %v", keys[0], ttl, err)
	}
}

// TestTakenNameOfDeadlines: a slot whose name has another type is left alone, and hides no other.
func TestTakenNameOfDeadlines(t *testing.T) {
	srv := redistest.Start(t)
	d := open(t, redisstore.Options{URL: srv.URL()}).Deadlines(time.Minute)
	slot := time.Now().Add(time.Hour).UnixMilli()
	taken := fmt.Sprintf("tt:due:%d", slot)
	must.Succeed(t, srv.Client(t).Set(t.Context(), taken, "text", time.Hour).Err())
	for range 2 {
		must.Succeed(t, d.ChangeDeadlines(t.Context(), map[int64][]string{slot: {"a"},
			slot + 1: {"b", "c"}}, map[int64][]string{slot: {"a"}, slot + 1: {"c"}}))
	}
	ids := idsOf(t, d, slot, slot+1)
	if len(ids) != 2 || ids[0] != nil || !slices.Equal(ids[1], []string{"b"}) {
		t.Errorf("%v", ids)
	}
	if text, err := srv.Client(t).Get(t.Context(), taken).Result(); text != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
