package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestBatchesAreEquivalent runs batches of random operations, and the same ones one by one in a
// model. The workers hold what they have read, or read every key anew. What they hold is what Redis
// has.
func TestBatchesAreEquivalent(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	short, _ := twoSpaces(t)
	exact := func(n int) map[string]*leaparray.Ladder {
		ladders := map[string]*leaparray.Ladder{}
		for name, l := range short {
			ladders[name] = otherLadder(t, n, l.Levels()...)
		}
		return ladders
	}
	calendar := map[string]*leaparray.Ladder{
		"default": otherLadder(t, 5, leaparray.Level{Width: time.Second, Count: 20},
			leaparray.Level{Width: 15 * time.Minute, Count: 120}),
		"other": otherLadder(t, 0, leaparray.Level{Width: time.Minute, Count: 20},
			leaparray.Level{Width: 40 * time.Minute, Count: 60}),
	}
	for name, test := range map[string]struct {
		draw    func(dice *rand.Rand, now int64) twotier.Op
		ladders map[string]*leaparray.Ladder
		memory  int
	}{
		"all kinds":             {randomOp, short, 0},
		"few rules":             {opByFewRules, short, 0},
		"one key":               {opOfOneKey, short, 0},
		"one key, read anew":    {opOfOneKey, short, 1},
		"at present":            {opAtPresent, short, 0},
		"at present, read anew": {opAtPresent, short, 1},
		"mostly counted":        {opThatCounts, short, 0},
		"values":                {opWithValues, short, 0},
		"values, read anew":     {opWithValues, short, 1},
		"none exact":            {randomOp, exact(0), 0},
		"one exact":             {opThatCounts, exact(1), 1},
		"calendar":              {opOnCalendar(t), calendar, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testBatchesAreEquivalent(t, test.draw, test.ladders, test.memory)
		})
	}
}

// at returns a cell around a moment.
func at(width, ms, n int64) syncer.Bucket { return counts(bucketAt(width, ms), n) }

func plant(t *testing.T, srv *redistest.Server, hash string, cells ...syncer.Bucket) {
	t.Helper()
	must.Succeed(t, srv.Do(append([]any{"HSET", hash}, redisstore.Fields(cells...)...)...).Err())
}

func testBatchesAreEquivalent(t *testing.T, draw func(dice *rand.Rand, now int64) twotier.Op,
	ladders map[string]*leaparray.Ladder, memory int) {
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 7))
	clk := newClock(t0)
	store := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Ladders: ladders,
		MostValues: mostValues})
	direct := openDirect(t, redisstore.DirectOptions{Store: store, Now: clk.now.Load,
		Memory: memory})
	alone := newModel(ladders, mostValues, clk.now.Load)
	res := make([]twotier.Result, 60)
	for round := range 80 {
		clk.now.Add(dice.Int64N(900) * dice.Int64N(2))
		if dice.IntN(30) == 0 {
			clk.now.Add(dice.Int64N(200_000))
		}
		ops := make([]twotier.Op, 1+dice.IntN(len(res)))
		for i := range ops {
			ops[i] = draw(dice, clk.now.Load())
			for j := range ops[i].Checks {
				// Only a Direct folds, so no key lives long enough for that.
				c := &ops[i].Checks[j]
				c.Key = fmt.Append(c.Key, "-", round/2)
			}
		}
		direct.DoAll(t.Context(), ops, res[:len(ops)])
		for _, name := range direct.Unlike(t.Context()) {
			t.Errorf("round %d: Redis has something else of %s", round, name)
		}
		for i, op := range ops {
			want, got := outcome(t.Context(), alone, op), ""
			if res[i].Err != nil {
				got = res[i].Err.Error()
			} else {
				got = fmt.Sprintf("allowed %v, retry after %d, %+v", res[i].Allowed,
					res[i].RetryAfter, res[i].Checks)
			}
			if widths.ReplaceAllString(want, "") != widths.ReplaceAllString(got, "") {
				t.Fatalf("round %d, operation %d at %d: %+v\nmodel:    %s\ntogether: %s", round, i,
					clk.now.Load(), op, want, got)
			}
		}
	}
}

// TestDirectForeignFields: a hash has fields that are no cells, and cells of another ladder or in a
// log. A key with a field that can't be decoded can't be decided about.
func TestDirectForeignFields(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	for key, fields := range map[string][]any{
		"name":      {"not a number", "7"},
		"number":    {"1763000000000", "5"},
		"letter":    {"c", "\x02\x02"},
		"long":      {"value12345", "2"},
		"different": redisstore.Fields(at(2500, t0-2500, 2)),
		"logged": {layout.LogField, string(layout.AppendLog(nil, []syncer.Bucket{
			at(1, t0-10, 7), at(1000, t0-5000, 3), at(1, t0-10, -7), at(1000, t0-5000, -1)}))},
	} {
		must.Succeed(t, srv.Do(append([]any{"HSET", s.Address(key)}, fields...)...).Err())
		there := int64(0)
		counted := key == "different" || key == "logged"
		if counted {
			there = 2
		}
		for i := range int64(3) {
			res := acquire(t, d, check(key, 1, 30_000, there+2))
			if res.Allowed != (i < 2) || res.Checks[0].Limits[0].Count != there+min(i+1, 2) {
				t.Errorf("%s, try %d: %+v", key, i, res)
			}
		}
		if srv.Do("HEXISTS", s.Address(key), layout.LogField).Val() != int64(0) {
			t.Errorf("%s: the log is left", key)
		}
		for i := 0; i < len(fields) && !counted; i += 2 {
			if got := srv.Do("HGET", s.Address(key), fields[i]).Val(); got != fields[i+1] {
				t.Errorf("%s: %v is now %v", key, fields, got)
			}
		}
	}
	page := redisstore.Fields(at(1000, t0, 1))[0].(string)
	tooLong := "\x01" + strings.Repeat("\xff", 10) + "\x01"
	for _, bad := range []string{"\x80", "\x01", tooLong} {
		for key, field := range map[string]string{"page" + bad: page, "log" + bad: layout.LogField,
			"value" + bad: layout.ValueField(1 << 63)} {
			must.Succeed(t, srv.Do("HSET", s.Address(key), field, bad).Err())
			op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{check(key, 1, 1000, 5)}}
			var res twotier.Result
			if err := d.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrUnavailable) {
				t.Errorf("%s %q: %+v, %v", key, bad, res, err)
			}
			if got := srv.Do("HGET", s.Address(key), field).Val(); got != bad {
				t.Errorf("%s: %q is now %v", key, bad, got)
			}
		}
	}
}

// TestBelowZeroIsZero: buckets are negative because more was taken back than was left. In both
// modes they make up the difference from buckets around and inside them. Apart from that, each
// counts as zero and makes no room in other buckets.
func TestBelowZeroIsZero(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	clk := newClock(t0)
	s := open(t, redisstore.Options{URL: srv.URL()})
	counter := openCounter(t, syncer.Options{Store: s, Now: clk.now.Load})
	direct := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	for mode, d := range map[string]doer{"two-tier": counter, "direct": direct} {
		add(t, direct, mode, 1, t0) // so the partition has a state
		srv.Do("DEL", s.Address(mode))
		plant(t, srv, s.Address(mode), at(1000, t0-10_000, -5), at(1000, t0-20_000, 8),
			at(1000, t0-50_000, -1), at(60_000, t0, -5), at(10_000, t0-30_000, 3),
			at(1000, t0-25_000, -3))
		holds := func(when string, want map[int64]int64) {
			for window, want := range want {
				if got := count(t, d, mode, window); got != want {
					t.Errorf("%s, %s: %d in %d ms, want %d", mode, when, got, window, want)
				}
			}
		}
		holds("found", map[int64]int64{15_000: 0, 30_000: 3, 60_000: 3, 3_600_000: 3})
		for i, allowed := range []bool{true, true, false} {
			if res := acquire(t, d, check(mode, 1, 30_000, 5)); res.Allowed != allowed {
				t.Errorf("%s, try %d: %+v", mode, i, res)
			}
		}
		flush(t, counter)
		holds("counted", map[int64]int64{15_000: 2, 30_000: 5, 60_000: 5, 3_600_000: 5})
		add(t, d, mode, -9, t0) // of two
		flush(t, counter)
		holds("taken back", map[int64]int64{15_000: 0, 30_000: 3, 60_000: 3, 3_600_000: 3})
		if got := bucketsIn(t, srv, s.Address(mode))[bucketAt(60_000, t0)]; got != -5 {
			t.Errorf("%s: Redis has %d in the bucket of a minute, want -5", mode, got)
		}
	}
}

// TestDirectOneBadKeyOfABatch: one key has a value of another type, which fails that operation and
// no other.
func TestDirectOneBadKeyOfABatch(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	must.Succeed(t, srv.Do("SET", s.Address("k7"), "not ours").Err())
	var ops []twotier.Op
	for i := range 20 {
		key := fmt.Sprint("k", i)
		ops = append(ops, twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{check("all", 1, 1000, 100), check(key, 1, 1000, 5)}},
			twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check(key, 1, 1000, 5)}},
			twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check(key, 1)}},
			twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check(key, 0, 1000, 0)}})
	}
	res := make([]twotier.Result, len(ops))
	d.DoAll(t.Context(), ops, res)
	for i, r := range res {
		if (r.Err != nil) != (i/4 == 7) {
			t.Errorf("operation %d: %v", i, r.Err)
		}
		if i/4 != 7 && i%4 == 3 && r.Checks[0].Limits[0].Hi != 3 {
			t.Errorf("operation %d reads %+v, want 3", i, r.Checks[0])
		}
	}
	if got := count(t, d, "all", 1000); got != 19 {
		t.Errorf("%d counted with the others, want 19", got)
	}
}

// TestDirectHashesAreBounded: a busy key lives long. Cells that are too old for their width fold
// now and then, and after its last event the key lives as long as any window needs it.
func TestDirectHashesAreBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	clk := newClock(t0)
	s := open(t, redisstore.Options{URL: srv.URL(),
		Ladders: ladders(ladderOf(t, shortLevels()...))})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	span := shortLevels()[2].Span()
	most := 0
	for i := range 400 {
		acquire(t, d, check("asked", 1, 1000, 100))
		add(t, d, "counted", 1, 0)
		for _, key := range []string{"asked", "counted"} {
			most = max(most, len(bucketsIn(t, srv, s.Address(key))))
			ttl, err := srv.Do("PTTL", s.Address(key)).Int64()
			if err != nil || time.Duration(ttl)*time.Millisecond < span {
				t.Fatalf("%s, event %d: lives for %d ms, %v; the longest window is %v", key, i, ttl,
					err, span)
			}
		}
		if i == 200 {
			for _, key := range []string{"asked", "counted"} {
				must.Succeed(t, srv.Do("PEXPIRE", s.Address(key), 3*span.Milliseconds()/2).Err())
			}
			clk.now.Add(span.Milliseconds() / 8)
		}
		clk.now.Add(100)
	}
	for _, key := range []string{"asked", "counted"} {
		if ttl := srv.Do("PTTL", s.Address(key)).Val().(int64); ttl < 19*span.Milliseconds()/10 {
			t.Errorf("%s lives for %d ms, want twice %v", key, ttl, span)
		}
	}
	// 64 events with their millisecond, 20, 20 and 8 buckets, the present one of each level, and
	// cells that are due but not folded yet.
	if bound := 64 + 21 + 21 + 9 + 32 + 8; most > bound {
		t.Errorf("%d cells, want at most %d", most, bound)
	}
}
