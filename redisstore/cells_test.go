package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// content holds the cells of a key.
type content map[leaparray.Stretch]int64

// cellsOf returns the cells that Redis has of a key of partition 0.
func cellsOf(t testing.TB, s *redisstore.Store, expiry, key string) content {
	t.Helper()
	command := "HGETALL"
	if expiry == "tairhash" {
		command = "EXHGETALL"
	}
	flat, err := s.Client().Do(t.Context(), command,
		redisstore.Key(0, nil, []byte(key))).Slice()
	if err != nil {
		t.Fatal(err)
	}
	all := content{}
	for _, b := range layout.ParseBuckets(flat, nil) {
		all[b.Stretch] = b.N
	}
	return all
}

func (c content) cells() (list []leaparray.Cell) {
	for s, n := range c {
		list = append(list, leaparray.Cell{Stretch: s, N: n})
	}
	return list
}

func (c content) buckets() (list []syncer.Bucket) {
	for s, n := range c {
		list = append(list, counts(s, n))
	}
	return list
}

func (c content) add(cells []leaparray.Cell) {
	for _, cell := range cells {
		c[cell.Stretch] += cell.N
	}
}

// fold folds the cells in place.
func (c content) fold(l *leaparray.Ladder, now, exactFrom int64) {
	for _, f := range l.ListFolds(c.cells(), now, exactFrom) {
		if delete(c, f.Stretch); f.Into.Width > 0 {
			c[f.Into] += f.N
		}
	}
}

func (c content) sum() (n int64) {
	for _, of := range c {
		n += of
	}
	return n
}

func isEmpty(_ leaparray.Stretch, n int64) bool { return n == 0 }

// same compares counts: an empty cell equals a missing one.
func (c content) same(with content) bool {
	a, b := maps.Clone(c), maps.Clone(with)
	maps.DeleteFunc(a, isEmpty)
	maps.DeleteFunc(b, isEmpty)
	return maps.Equal(a, b)
}

// foldingLadders returns two ladders whose buckets lie in one another, one without exact events,
// and one that soon has no room.
func foldingLadders(t testing.TB) []*leaparray.Ladder {
	t.Helper()
	var list []*leaparray.Ladder
	for _, l := range []struct {
		exact  int
		levels string
	}{
		{64, "100ms x 100, 1s x 100, 10s x 60, 1m x 150, 15m x 100"},
		{5, "500ms x 20, 5s x 30, 1m x 60"},
		{0, "1s x 30, 1m x 20"},
	} {
		levels, err := config.ParseLadder(l.levels)
		if err != nil {
			t.Fatal(err)
		}
		ladder, err := leaparray.NewLadder(l.exact, levels...)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ladder)
	}
	return list
}

// drawCell draws a cell of some ladder, or of a width that no ladder has, mostly in the past.
func drawCell(dice *rand.Rand, all []*leaparray.Ladder, now int64) leaparray.Stretch {
	age := dice.Int64N([]int64{300, 5000, 120_000, 3_600_000, 100_000_000}[dice.IntN(5)]) - 1000
	width := int64(1)
	if dice.IntN(3) > 0 {
		l := all[dice.IntN(len(all))]
		width = l.Width(dice.IntN(l.Len()))
	}
	start := now - age
	return leaparray.Stretch{Start: start - start%width, Width: width}
}

func drawContent(dice *rand.Rand, all []*leaparray.Ladder, now int64) content {
	c := content{}
	for range dice.IntN(200) {
		n := 1 + dice.Int64N(3)
		if dice.IntN(10) == 0 {
			n = -n
		}
		c[drawCell(dice, all, now)] = n
	}
	return c
}

// TestRedisFoldsAsMemoryDoes folds random cells of several ladders at the request of a round,
// before the round adds anything.
func TestRedisFoldsAsMemoryDoes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dice, all := rand.New(rand.NewPCG(storetest.Seed(t), 11)), foldingLadders(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		flushAll(t, srv)
		s := open(t, redisstore.Options{URL: srv.URL(), Expiry: redisstore.Expiry(expiry)})
		for i := range 150 {
			l, now, key := all[i%len(all)], t0+dice.Int64N(10_000_000), fmt.Sprint("k", i)
			want := drawContent(dice, all, now)
			fill := &syncer.Round{Writer: "filler", Seq: uint64(i + 1), Keys: []syncer.KeyRound{
				{Key: []byte(key), TTL: 3_600_000, Adds: want.buckets()}}}
			at, exactFrom := drawCell(dice, all, now), int64(0)
			if dice.IntN(2) == 0 {
				exactFrom = now - dice.Int64N(1_000_000)
			}
			r := &syncer.Round{Writer: "w", Seq: uint64(i + 1), Now: now, Keys: []syncer.KeyRound{
				{Key: []byte(key), TTL: 3_600_000, Adds: []syncer.Bucket{counts(at, 2)}, Ladder: l,
					Fold: true, ExactFrom: exactFrom, Load: dice.IntN(2) == 0}}}
			send(t, s, fill)
			if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil {
				t.Fatal(r.Err, r.Keys[0].Err)
			}
			before := maps.Clone(want)
			want.fold(l, now, exactFrom)
			want[at] += 2
			k := &r.Keys[0]
			if loaded := loadedOf(k); !storetest.IsStored(&k.Adds[0], want[at]) ||
				k.Load && !loaded.same(want) {
				t.Fatalf("%v: reported %d and %v, had %v", at, k.Adds[0].Stored, loaded, want)
			}
			if got := cellsOf(t, s, expiry, key); !got.same(want) {
				t.Fatalf("%s, %v at %d: %v folds into\n%v, want\n%v", expiry, l, now, before, got,
					want)
			}
		}
	}
}

func loadedOf(k *syncer.KeyRound) content {
	c := content{}
	for _, b := range k.Loaded {
		c[b.Stretch] = b.N
	}
	return c
}

// TestManyCellsFoldUnasked counts more events of one key than its ladder has cells: the key folds
// although no round asks for that. Others have counted by narrower ladders.
func TestManyCellsFoldUnasked(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	l := foldingLadders(t)[1]
	for seq := range int64(20) {
		k := syncer.KeyRound{Key: []byte("k"), TTL: 3_600_000, Ladder: l}
		for i := range int64(50) {
			k.Adds = append(k.Adds, counts(leaparray.Moment(t0+seq*20_000+i*200), 1))
		}
		r := &syncer.Round{Writer: "w", Seq: uint64(seq + 1), Now: t0 + seq*20_000 + 10_000,
			Keys: []syncer.KeyRound{k}}
		if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil {
			t.Fatal(r.Err, r.Keys[0].Err)
		}
		got := cellsOf(t, s, "key", "k")
		if n := got.sum(); len(got) > l.MaxCells() || n != 50*(seq+1) {
			t.Fatalf("%d events in %d cells, want %d in at most %d", n, len(got), 50*(seq+1),
				l.MaxCells())
		}
	}
}

// TestCellsThatDoNotFold has values that are no counts, counts that would overflow, and foreign
// fields: they stay, and keep nothing else from folding.
func TestCellsThatDoNotFold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	l, key := foldingLadders(t)[2], redisstore.Key(0, nil, []byte("k"))
	old := func(i int64, width int64) string {
		start := int64(t0) - 600_000
		return redisstore.Field(leaparray.Stretch{Start: start - start%60_000 + i*width,
			Width: width})
	}
	large := "9223372036854775807"
	fields := []any{"note", "of a human", "-12", "3", old(1, 1000), "many", old(2, 1000), large,
		old(3, 1000), "4", old(4, 1000), "5", old(9, 100), "-2", old(-60, 60_000), large,
		old(-3600, 1000), "1"}
	if err := srv.Do(append([]any{"HSET", key}, fields...)...).Err(); err != nil {
		t.Fatal(err)
	}
	r := &syncer.Round{Writer: "w", Seq: 1, Now: t0, Keys: []syncer.KeyRound{{Key: []byte("k"),
		Ladder: l, Fold: true, Adds: []syncer.Bucket{counts(second, 1)}}}}
	if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil {
		t.Fatal(r.Err, r.Keys[0].Err)
	}
	got, err := s.Client().HGetAll(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"note": "of a human", "-12": "3", old(1, 1000): "many",
		redisstore.Field(second): "1"}
	// The large one goes first or last, and has its bucket to itself if the others don't fit.
	into := got[old(0, 60_000)]
	switch into {
	case large, "9223372036854775805": // the latter if the two that are taken back go after it
		delete(got, old(3, 1000))
		delete(got, old(4, 1000))
	case "7":
		want[old(2, 1000)] = large
	default:
		t.Errorf("the minute holds %q", into)
	}
	for _, field := range []string{old(0, 60_000), old(9, 100)} {
		delete(got, field)
	}
	if !maps.Equal(got, want) {
		t.Errorf("besides the minute there is %v, want %v", got, want)
	}
}

// TestMillisecondsFoldInTime counts a key too fast for each event to keep its millisecond for long,
// and too slowly to share buckets: it has no more cells than its exact events, the levels of its
// ladder and one fold need, so Redis keeps it in its compact form.
func TestMillisecondsFoldInTime(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(),
		Placement: twotier.Placement{Partitions: 1}})
	clk := newClock(t0)
	c := openCounter(t, syncer.Options{Store: s, Placement: twotier.Placement{Partitions: 1},
		Now: clk.now.Load})
	for i := range 3000 {
		clk.now.Add(61)
		add(t, c, "k", 1, 0)
		if i%20 == 0 {
			flush(t, c)
		}
	}
	flush(t, c)
	cells := cellsOf(t, s, "key", "k")
	moments := 0
	for at := range cells {
		if at.Width == 1 {
			moments++
		}
	}
	if n := cells.sum(); n != 3000 || moments < 64 || moments > 2*64+2*32 {
		t.Errorf("%d events, %d fields, %d of a millisecond", n, len(cells), moments)
	}
}

// TestRedisListsMomentsAsGoDoes counts the same moments in rounds, one by one and several at a
// time, and in Go: the fields are the same to the byte, as pure-Redis mode relies on.
func TestRedisListsMomentsAsGoDoes(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 22))
	for key := range 20 {
		want, name := layout.Lists{}, fmt.Sprint("k", key)
		for seq := range uint64(40) {
			k := syncer.KeyRound{Key: []byte(name), TTL: 3_600_000}
			for range 1 + dice.IntN(3)*dice.IntN(15) {
				at := t0 + dice.Int64N(3)*dice.Int64N(1<<dice.IntN(27))
				b := counts(leaparray.Moment(at), 1+dice.Int64N(255))
				k.Adds = append(k.Adds, b)
				want.Push(b.Start, b.N, func(string) {})
			}
			r := &syncer.Round{Writer: name, Seq: seq + 1, Keys: []syncer.KeyRound{k}}
			if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil {
				t.Fatal(r.Err, r.Keys[0].Err)
			}
			want.Finish(func(string) {})
			got := s.Client().HGetAll(t.Context(), redisstore.Key(0, nil, k.Key)).Val()
			if !maps.Equal(got, map[string]string(want)) {
				t.Fatalf("after %d rounds: %q, want %q", seq+1, got, want)
			}
		}
	}
}

// TestContentOfManyBuckets folds a key of a ladder with more buckets than Lua can pass to a
// command: its content is too large to be written, and nothing is lost or counted twice.
func TestContentOfManyBuckets(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	l, err := leaparray.NewLadder(0, leaparray.Level{Width: time.Second, Count: 4096},
		leaparray.Level{Width: time.Hour, Count: 48})
	must.Succeed(t, err)
	const buckets = 4090
	k := syncer.KeyRound{Key: []byte("k"), TTL: 3_600_000, Ladder: l}
	for i := range int64(buckets) {
		at := leaparray.Stretch{Start: second.Start - i*1000, Width: 1000}
		k.Adds = append(k.Adds, counts(at, 1))
	}
	r := &syncer.Round{Writer: "w", Seq: 1, Now: t0, Keys: []syncer.KeyRound{k}}
	for range 2 {
		if send(t, s, r); r.Err != nil || r.Lost || r.Keys[0].Err != nil {
			t.Fatal(r.Err, r.Lost, r.Keys[0].Err)
		}
		r.Acked, r.Seq = 1, 2
		r.Keys[0].Fold, r.Keys[0].Content = true, slices.Clone(k.Adds)
		r.Keys[0].Adds = []syncer.Bucket{counts(second, 1)}
		r.Keys[0].Content[0].N = 2
	}
	got := cellsOf(t, s, "key", "k")
	if got.sum() != buckets+1 || got[second] != 2 {
		t.Errorf("%d events, %d in the last second, want %d and 2", got.sum(), got[second],
			buckets+1)
	}
}

// TestRefusedMomentsLeaveNothing revokes PEXPIRE: a key that can't be given a time to live is
// refused, again and again, and is not there afterwards.
func TestRefusedMomentsLeaveNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	f := &refusing{t: t, srv: srv}
	f.allow("+", "pexpire")
	s := open(t, redisstore.Options{URL: "redis://limited:secret@" + srv.Addr()})
	works(t, s)
	f.allow("-", "pexpire")
	for seq := range uint64(3) {
		r := &syncer.Round{Writer: "w", Seq: seq + 1, Keys: []syncer.KeyRound{{Key: []byte("k"),
			TTL: 3_600_000, Adds: []syncer.Bucket{counts(leaparray.Moment(t0), 3),
				counts(leaparray.Moment(t0+1), 1)}}}}
		if send(t, s, r); r.Err != nil || r.Keys[0].Err == nil {
			t.Fatal(r.Err, r.Keys[0].Err)
		}
	}
	if n := srv.Do("HLEN", redisstore.Key(0, nil, []byte("k"))).Val(); n != int64(0) {
		t.Errorf("%v fields are left", n)
	}
}
