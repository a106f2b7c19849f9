package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
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

// readKeys reads a partition's list of keys to its end.
func readKeys(t *testing.T, s *redisstore.Store, l *syncer.KeyList) map[uint32]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := map[uint32]bool{}
	for l.More = true; l.More; {
		if s.ListKeys(ctx, []*syncer.KeyList{l}); l.Err != nil {
			t.Fatal(l.Err)
		}
		for _, h := range l.Hashes {
			found[h] = true
		}
	}
	return found
}

// countNew counts new keys with a time to live in partition 3.
func countNew(t *testing.T, s *redisstore.Store, seq uint64, ttl time.Duration, names ...string) {
	t.Helper()
	r := &syncer.Round{Partition: 3, Writer: "w", Seq: seq}
	for _, name := range names {
		r.Keys = append(r.Keys, syncer.KeyRound{Key: []byte(name), TTL: ttl.Milliseconds(),
			Renew: true, New: true, Adds: []syncer.Bucket{counts(second, 1)}})
	}
	if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// TestPureRedisModeListsKeys counts keys in pure-Redis mode, alone and several in one operation:
// all are listed, and one that is counted again in the same buckets is not listed again.
func TestPureRedisModeListsKeys(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	want := map[string]bool{}
	for i := range 40 {
		a, b := fmt.Sprint("a-", i), fmt.Sprint("b-", i)
		acquire(t, d, check(a, 1, 60_000, 2))
		do(t, d, twotier.Op{Kind: twotier.Add,
			Checks: []twotier.Check{check(b, 1, 60_000, 9), check(a, 1, 60_000, 9)}})
		do(t, d, twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(a + b), N: 1}}})
		want[a], want[b], want[a+b] = true, true, true
	}
	place, lists := s.Placement(), map[int]*syncer.KeyList{}
	found, listed := map[int]map[uint32]bool{}, 0
	for name := range want {
		p := place.Of(nil, []byte(name))
		if lists[p] == nil {
			lists[p] = &syncer.KeyList{Partition: p}
			found[p] = readKeys(t, s, lists[p])
			listed += int(lists[p].Offset) / 4
		}
		if !found[p][syncer.KeyHash(nil, []byte(name))] {
			t.Errorf("%s is not listed", name)
		}
	}
	if listed != len(want) {
		t.Errorf("%d hashes are listed of %d keys", listed, len(want))
	}
}

// TestListGoesOnInParts lists keys with a short time to live: parts of the list go once their keys
// have gone, and a reader that has kept up misses nothing.
func TestListGoesOnInParts(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	const ttl = 300 * time.Millisecond
	l := &syncer.KeyList{Partition: 3}
	exists := func(key string) bool {
		t.Helper()
		n, err := s.Client().Exists(t.Context(), redisstore.Key(3, nil, []byte(key))).Result()
		must.Succeed(t, err)
		return n == 1
	}
	for i := range 24 {
		name := fmt.Sprint("k-", i)
		countNew(t, s, uint64(i+1), ttl, name)
		// On a busy machine, the key and its part may be gone before the list is read.
		if found := readKeys(t, s, l); !found[syncer.KeyHash(nil, []byte(name))] && exists(name) {
			t.Fatalf("%s was not read", name)
		}
		// Whatever is still there is listed, too.
		whole := readKeys(t, s, &syncer.KeyList{Partition: 3})
		for j := range i + 1 {
			key := fmt.Sprint("k-", j)
			if exists(key) && !whole[syncer.KeyHash(nil, []byte(key))] {
				t.Errorf("%s is there, and not listed", key)
			}
		}
		time.Sleep(ttl / 5)
	}
	if l.Part < 3 {
		t.Errorf("the list has had %d parts", l.Part)
	}
	names, err := s.Client().Keys(t.Context(), "tt:{p3}!k:*").Result()
	if err != nil || len(names) > 2 {
		t.Errorf("parts %v, %v", names, err)
	}
}

// TestListedKeyIsNotListedAgain sets the time to live of a listed key, and of another: only the
// other one is added to the list, whose last part then lives for as long as it must.
func TestListedKeyIsNotListedAgain(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	const ttl = 3_600_000
	count := func(seq uint64, name string, listed bool) {
		t.Helper()
		r := &syncer.Round{Partition: 3, Writer: "w", Seq: seq, Keys: []syncer.KeyRound{{
			Key: []byte(name), TTL: ttl, Renew: true, Listed: listed,
			Adds: []syncer.Bucket{counts(leaparray.Moment(int64(seq)), 1)}}}}
		if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	count(1, "a", false)
	count(2, "a", true)
	l := &syncer.KeyList{Partition: 3}
	if readKeys(t, s, l); l.Offset != 4 {
		t.Errorf("the list has %d bytes, want 4", l.Offset)
	}
	first := fmt.Sprintf("tt:{p3}!k:%d", l.Part)
	left := (ttl + 1000) * time.Millisecond
	must.Succeed(t, s.Client().PExpire(t.Context(), first, left).Err())
	count(3, "b", false)
	if found := readKeys(t, s, l); !found[syncer.KeyHash(nil, []byte("b"))] {
		t.Error("b is not listed")
	}
	last := fmt.Sprintf("tt:{p3}!k:%d", l.Part)
	least := time.Duration(syncer.ListTTL(ttl)) * time.Millisecond
	if left, err := s.Client().PTTL(t.Context(), last).Result(); err != nil || left < least {
		t.Errorf("the list lives for %v, %v, want at least %v", left, err, least)
	}
}

// TestListThatCannotBeWritten puts another program's value in the place of a list: counting goes
// on, and the list no longer counts as complete. Nor does the list of data that is older than the
// list.
func TestListThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	unlisted := func() bool {
		l := &syncer.KeyList{Partition: 3}
		s.ListKeys(t.Context(), []*syncer.KeyList{l})
		return errors.Is(l.Err, errors.ErrUnsupported)
	}
	countNew(t, s, 1, time.Hour, "a")
	if unlisted() {
		t.Fatal("a list that is complete is not taken for that")
	}
	ctx := t.Context()
	must.Succeed(t, s.Client().Del(ctx, "tt:{p3}!k:1").Err())
	must.Succeed(t, s.Client().HSet(ctx, "tt:{p3}!k:1", "alien", 1).Err())
	s.Client().Expire(ctx, "tt:{p3}!k:1", 2*time.Hour) // longer than the key: it is written to
	countNew(t, s, 2, time.Hour, "b")
	if !unlisted() {
		t.Error("a list that could not be written is taken for complete")
	}
	if n, _ := s.Client().Exists(ctx, redisstore.Key(3, nil, []byte("b"))).Result(); n != 1 {
		t.Error("the key was not counted")
	}
}

// TestListOfDataThatLacksAChange: the change of a writer is missing, though others have made more.
func TestListOfDataThatLacksAChange(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	countNew(t, s, 1, time.Hour, "a")
	r := &syncer.Round{Partition: 3, Writer: "reader"}
	send(t, s, r)
	for writer, lost := range map[string]bool{"!w:w": false, "!w:lost": true} {
		l := &syncer.KeyList{Partition: 3, Told: syncer.Told{Epoch: r.Epoch, Version: 1,
			LastChange: strings.Replace(r.LastChange, "!w:w", writer, 1)}}
		countNew(t, s, r.Version+1, time.Hour, "b")
		if s.ListKeys(t.Context(), []*syncer.KeyList{l}); l.Err != nil || l.Lost != lost {
			t.Errorf("%+v", l)
		}
		r.Version++
	}
}

// TestKeysOlderThanTheirList: data that lost its state has keys that no list has.
func TestKeysOlderThanTheirList(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	countNew(t, s, 1, time.Hour, "a")
	must.Succeed(t, s.Client().Del(t.Context(), "tt:{p3}!s", "tt:{p3}!k:1", "tt:{p3}!w:w").
		Err())
	countNew(t, s, 2, time.Hour, "a", "b")
	l := &syncer.KeyList{Partition: 3}
	if s.ListKeys(t.Context(), []*syncer.KeyList{l}); !errors.Is(l.Err, errors.ErrUnsupported) {
		t.Errorf("%d keys are listed, error %v", len(l.Hashes), l.Err)
	}
}
