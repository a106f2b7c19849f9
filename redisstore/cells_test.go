package redisstore_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
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
	must.Succeed(t, err)
	return contentOf(layout.ParseContent(flat, nil).Buckets)
}

// hashes is a server, or a database of one, in this process.
type hashes interface {
	HKeys(key string) ([]string, error)
	HGet(key, field string) string
}

// eventsIn returns how many events the Hash of a key has in the first second.
func eventsIn(of hashes, key string) int64 {
	names, err := of.HKeys(key)
	if err != nil {
		return 0
	}
	var flat []any
	for _, name := range names {
		flat = append(flat, name, of.HGet(key, name))
	}
	return contentOf(layout.ParseContent(flat, nil).Buckets)[second]
}

func contentOf(buckets []syncer.Bucket) content {
	all := content{}
	for _, b := range buckets {
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
		must.Succeed(t, err)
		ladder, err := leaparray.NewLadder(l.exact, levels...)
		must.Succeed(t, err)
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
	must.Succeed(t, c.Do(t.Context(), &twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{
		Key: []byte("k"), N: 1, Limits: []twotier.Limit{{Window: 60_000, Max: 64}}}}},
		new(twotier.Result)))
	for i := range 2999 {
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

// TestContentOfManyBuckets rewrites a key of a ladder with very many buckets.
func TestContentOfManyBuckets(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	const buckets = 50_000
	k := syncer.KeyRound{Key: []byte("k"), TTL: 3_600_000}
	for i := range int64(buckets) {
		at := leaparray.Stretch{Start: second.Start - (buckets-1-i)*1000, Width: 1000}
		k.Adds = append(k.Adds, counts(at, 1<<40))
	}
	r := &syncer.Round{Writer: "w", Seq: 1, Now: t0, Keys: []syncer.KeyRound{k}}
	for range 2 {
		if send(t, s, r); r.Err != nil || r.Lost || r.Keys[0].Err != nil {
			t.Fatal(r.Err, r.Lost, r.Keys[0].Err)
		}
		r.Acked, r.Seq, r.Keys[0].Rewrite, r.Keys[0].ContentLog = 1, 2, true, syncer.WholeLog
		r.Keys[0].Content = slices.Clone(k.Adds)
		r.Keys[0].Adds = []syncer.Bucket{counts(second, 1)}
		r.Keys[0].Content[buckets-1].N++
	}
	got := cellsOf(t, s, "key", "k")
	if got.sum() != buckets<<40+1 || got[second] != 1<<40+1 || r.Keys[0].Read {
		t.Errorf("%d events, %d in the last second", got.sum(), got[second])
	}
}
