package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// floodBed is a counter without Redis that has little memory.
type floodBed struct {
	c     *syncer.Counter
	clk   *clock
	place twotier.Placement
	until int64 // the end of all leases
}

func openFloodBed(t *testing.T) *floodBed {
	b := &floodBed{clk: &clock{now: t0}, place: twotier.Placement{Partitions: 8},
		until: t0 + 20*3_600_000}
	b.c = openAlone(t, syncer.Options{
		Now: b.clk.Now, Placement: b.place, MaxMemory: 1 << 19})
	return b
}

// key returns a key in a partition, in any if it is negative.
func (b *floodBed) key(partition int, name string) string {
	if partition < 0 {
		return name
	}
	return keyIn(b.place, partition, name)
}

// do carries an operation out. If memory is full, all keys in it become idle first, and the sweep
// makes room in the background.
func (b *floodBed) do(t *testing.T, op twotier.Op) (res twotier.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tries := 0; ; tries++ {
		err := b.c.Do(ctx, &op, &res)
		if err == nil {
			return res
		}
		if !errors.Is(err, twotier.ErrFull) || ctx.Err() != nil {
			t.Fatalf("after %d tries: %v", tries, err)
		}
		flush(t, b.c)
		if tries < 30 { // the windows of the limits go on
			b.clk.set(b.clk.Now() + 3000)
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// flood counts two events of each of some new keys.
func (b *floodBed) flood(t *testing.T, name string, partition, keys int) {
	t.Helper()
	for i := range keys {
		key := b.key(partition, fmt.Sprint(name, i, "-"))
		b.do(t, twotier.Op{Checks: []twotier.Check{{Key: []byte(key), N: 2}}})
		if i%200 == 0 {
			flush(t, b.c)
		}
	}
	flush(t, b.c)
}

// victim is a key that has used something up, which a flood must not give back.
type victim struct {
	kind, key string
	n         int64 // its count
}

// use uses up what the victim has. It is refused if nothing is left.
func (b *floodBed) use(t *testing.T, v *victim) (refused bool) {
	t.Helper()
	switch op := leased(v.key, 0, 1, b.until, 1); v.kind {
	case "limit":
		return !b.do(t, *acquireOp(v.key, 1, v.n)).Allowed
	case "ban":
		res := b.do(t, banned(v.key, 1, 24*3_600_000, 0, limits(3_600_000, v.n)))
		return res.Checks[1].Refused && res.Checks[1].TS == 0
	case "settlement":
		op.Checks[1].NS, op.Checks[1].Key = twotier.SettledKey(20*3_600_000, nil, "hold",
			[]byte(v.key))
		fallthrough
	default: // a lease
		return !b.do(t, op).Allowed
	}
}

// TestFloodForgetsTheSmallestEverywhere floods a counter without Redis with new keys that count
// less than some known ones, in one partition or in all. The known keys keep their counts, and
// their bans, leases and settlements, which are counts of one.
func TestFloodForgetsTheSmallestEverywhere(t *testing.T) {
	first := seed.First()
	for i, at := range []struct{ flood, victims int }{{-1, -1}, {3, -1}, {-1, 3}, {3, 5}, {3, 3}} {
		name := fmt.Sprintf("flood in %d, known keys in %d", at.flood, at.victims)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", first)
			dice := rand.New(rand.NewPCG(first, uint64(i)))
			b := openFloodBed(t)
			var all []*victim
			for i := range 240 {
				kind := []string{"limit", "ban", "lease", "settlement"}[i%4]
				key := b.key(at.victims, fmt.Sprint(kind, i, "-"))
				v := &victim{kind, key, 3 + dice.Int64N(600)}
				add(t, b.c, v.key, v.n, 0)
				if v.kind != "limit" && b.use(t, v) {
					t.Fatalf("a new %s is refused", v.kind)
				}
				all = append(all, v)
			}
			b.flood(t, "flood", at.flood, 8000)
			b.flood(t, "more", -1, 4000)
			if n := b.c.Stats().EvictedTotal; n < 6000 {
				t.Errorf("only %d keys were forgotten", n)
			}
			given := map[string]int{}
			for _, v := range all {
				if !b.use(t, v) {
					given[v.kind]++
				}
			}
			if len(given) > 0 {
				t.Errorf("the flood has given back %v, of 60 each", given)
			}
		})
	}
}

// TestFloodForgetsTheOldestOfEquals counts more keys than memory holds, once each, after others
// that have counted more, months ago. The newest are kept.
func TestFloodForgetsTheOldestOfEquals(t *testing.T) {
	b := openFloodBed(t)
	for i := range 6000 {
		b.do(t, twotier.Op{Checks: []twotier.Check{{Key: fmt.Append(nil, "past", i), N: 3}}})
	}
	b.clk.set(b.clk.Now() + 90*86_400_000)
	for i := range 9000 {
		b.clk.set(b.clk.Now() + 10)
		b.do(t, twotier.Op{Checks: []twotier.Check{{Key: fmt.Append(nil, "k", i), N: 1}}})
	}
	kept := func(from, to int) (n int64) {
		for i := from; i < to; i++ {
			n += count(t, b.c, fmt.Sprint("k", i), 86_400_000)
		}
		return n
	}
	if old, young := kept(0, 1000), kept(7000, 9000); old > 500 || young < 1900 {
		t.Errorf("of the 1000 oldest keys %d are kept, of the 2000 newest %d", old, young)
	}
	if n := b.c.Stats().Keys; n > 8000 { // the sweep may have dropped those of the past
		t.Errorf("%d of 15000 keys are in memory: too few were forgotten", n)
	}
}

// TestBansOutliveTheirKeys floods a counter without Redis with keys that count as much as a key
// whose counts have left every window, but not its ban.
func TestBansOutliveTheirKeys(t *testing.T) {
	clk := &clock{now: t0}
	short, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Second, Count: 60})
	must.Succeed(t, err)
	b := &floodBed{clk: clk, place: twotier.Placement{Partitions: 8}}
	b.c = openAlone(t, syncer.Options{Now: clk.Now, Placement: b.place, MaxMemory: 1 << 19,
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {Ladder: short}}})
	v := &victim{kind: "ban", key: "banned", n: 5}
	ban := banned(v.key, 1, 24*3_600_000, 0, limits(10_000, v.n))
	add(t, b.c, v.key, v.n, 0)
	b.do(t, ban)
	clk.set(clk.Now() + 600_000)
	b.flood(t, "flood", -1, 8000) // they count 2 each
	if n := b.c.Stats().EvictedTotal; n < 1000 {
		t.Errorf("only %d keys were forgotten", n)
	}
	if res := b.do(t, ban); res.Allowed || !res.Checks[1].Refused {
		t.Errorf("the ban is forgotten: %+v", res)
	}
}

// TestWithoutAStoreNothingWaits counts, resets and closes without a store.
func TestWithoutAStoreNothingWaits(t *testing.T) {
	clk := &clock{now: t0}
	c := openAlone(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 2}})
	add(t, c, "k", 3, 0)
	op := acquireOp("k", 2, 5)
	op.Ack = twotier.AckStore
	for i, allowed := range []bool{true, false} {
		var res twotier.Result
		must.Succeed(t, c.Do(t.Context(), op, &res))
		if res.Allowed != allowed || res.Degraded || res.Source != twotier.SourceMemory {
			t.Errorf("acquire %d: %+v", i, res)
		}
	}
	must.Succeed(t, c.Flush(t.Context()))
	if s := c.Stats(); s.PendingBuckets != 0 || s.Keys != 1 || s.LoadsTotal != 0 ||
		s.UnflushedAge != 0 || s.BatchesOKTotal != 0 {
		t.Errorf("%+v", s)
	}
	must.Succeed(t, c.ResetKey(t.Context(), nil, []byte("k")))
	wantCount(t, c, "k", 60_000, 0)
	if err := c.BeginHandoff(t.Context(), 0); err == nil {
		t.Error("a partition can be handed over")
	}
	add(t, c, "k", 1, 0)
	must.Succeed(t, c.Close(t.Context()))
}

// TestFullNamespaceWithoutAStoreForgetsNoCounts adds a key to a namespace that has its most keys.
// It is refused, however long the others are idle, until the counts of one have left every window.
func TestFullNamespaceWithoutAStoreForgetsNoCounts(t *testing.T) {
	clk := &clock{now: t0}
	c := openAlone(t, syncer.Options{Now: clk.Now, Placement: twotier.Placement{Partitions: 4},
		Namespaces: map[string]syncer.Namespace{twotier.DefaultNamespace: {MaxKeys: 20}}})
	for i := range 20 {
		add(t, c, fmt.Sprint("k", i), 5, 0)
	}
	op := acquireOp("new", 1, 5)
	for _, later := range []int64{0, 3000, 3_600_000} {
		clk.set(clk.Now() + later)
		if err := c.Do(t.Context(), op, new(twotier.Result)); !errors.Is(err, twotier.ErrMaxKeys) {
			t.Errorf("%d ms later: %v", later, err)
		}
		for i := range 20 {
			wantCount(t, c, fmt.Sprint("k", i), 86_400_000, 5)
		}
	}
	clk.set(clk.Now() + 90*86_400_000)
	must.Succeed(t, c.Do(t.Context(), op, new(twotier.Result)))
}
