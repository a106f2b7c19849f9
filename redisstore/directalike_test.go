package redisstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer/storetest"
)

// TestDirectDecidesAsTheModel runs random operations one by one, late and early ones, refunds and
// bans. A model that counts by leaparray gives the same answers, and has the same cells as Redis
// after each operation, folds included.
func TestDirectDecidesAsTheModel(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	for _, exact := range []int{0, 1, 5, 64} {
		for name, draw := range map[string]func(dice *rand.Rand, now int64) twotier.Op{
			"all kinds": randomOp, "mostly counted": opThatCounts} {
			t.Run(fmt.Sprintf("%d exact, %s", exact, name), func(t *testing.T) {
				testDecidesAsTheModel(t, exact, draw)
			})
		}
	}
}

// opThatCounts draws an operation on few keys that is rarely refused, so they get many cells.
func opThatCounts(dice *rand.Rand, now int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Kind(dice.IntN(2)), TS: now - dice.Int64N(3)}
	switch dice.IntN(12) {
	case 0:
		op.TS = 0
	case 1:
		op.TS = now - dice.Int64N(30_000)
	case 2:
		op.TS = now + dice.Int64N(2000)
	}
	c := check(fmt.Sprint("k", dice.IntN(2)), 1+dice.Int64N(8)/7)
	c.NS = []byte([]string{"default", "other"}[dice.IntN(2)])
	if dice.IntN(8) == 0 && op.Kind == twotier.Add {
		c.N = -dice.Int64N(4)
	}
	for range 1 + dice.IntN(2) {
		if op.Kind == twotier.Add && dice.IntN(2) == 0 {
			break
		}
		c.Limits = append(c.Limits,
			twotier.Limit{Window: 1 + dice.Int64N(40_000), Max: 1 + dice.Int64N(300)})
	}
	op.Checks = []twotier.Check{c}
	return op
}

func testDecidesAsTheModel(t *testing.T, exact int,
	draw func(dice *rand.Rand, now int64) twotier.Op) {
	dice := rand.New(rand.NewPCG(storetest.Seed(t), uint64(exact)))
	plain, _ := twoSpaces(t)
	ladders := map[string]*leaparray.Ladder{}
	for name, l := range plain {
		ladders[name] = otherLadder(t, exact, l.Levels()...)
	}
	compareWithModel(t, dice, ladders, draw, 100_000)
}

// TestDirectDecidesCalendarWindowsAsTheModel does the same with calendar windows, on ladders that
// cover a day. Buckets as wide as 40 minutes lie across the start of a period.
func TestDirectDecidesCalendarWindowsAsTheModel(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	for _, exact := range []int{0, 5} {
		t.Run(fmt.Sprintf("%d exact", exact), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(storetest.Seed(t), uint64(exact)+1))
			compareWithModel(t, dice, map[string]*leaparray.Ladder{
				"default": otherLadder(t, exact, leaparray.Level{Width: time.Second, Count: 20},
					leaparray.Level{Width: 15 * time.Minute, Count: 120}),
				"other": otherLadder(t, exact, leaparray.Level{Width: time.Minute, Count: 20},
					leaparray.Level{Width: 40 * time.Minute, Count: 60}),
			}, opOnCalendar(t), 200*time.Minute.Milliseconds())
		})
	}
}

// opOnCalendar returns a function that draws operations with calendar and sliding windows.
func opOnCalendar(t *testing.T) func(dice *rand.Rand, now int64) twotier.Op {
	var periods []*twotier.Period
	for _, text := range []string{"hour", "hour@Asia/Kathmandu", "day@America/New_York", "day.6"} {
		p, err := twotier.ParsePeriod(text)
		must.Succeed(t, err)
		periods = append(periods, p)
	}
	return func(dice *rand.Rand, now int64) twotier.Op {
		op := randomOp(dice, now)
		if op.TS != 0 && op.TS < now {
			op.TS = now - dice.Int64N(40*time.Hour.Milliseconds())
		}
		for i := range op.Checks {
			c := &op.Checks[i]
			for j := range c.Limits {
				if dice.IntN(4) > 0 && !c.IsBan() {
					c.Limits[j] = twotier.Limit{Max: 1 + dice.Int64N(60),
						Period: periods[dice.IntN(len(periods))]}
				}
			}
		}
		return op
	}
}

// compareWithModel compares the outcomes of operations, and the cells that they leave, with a
// model. Time goes by in small steps, and now and then in one of up to jump milliseconds.
func compareWithModel(t *testing.T, dice *rand.Rand, ladders map[string]*leaparray.Ladder,
	draw func(dice *rand.Rand, now int64) twotier.Op, jump int64) {
	t.Helper()
	clk := newClock(t0)
	store := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Ladders: ladders})
	direct := openDirect(t, redisstore.DirectOptions{Store: store, Now: clk.now.Load})
	m := newModel(ladders, clk.now.Load)
	folds := 0
	for i := range *traceOps {
		clk.now.Add(dice.Int64N(300) * dice.Int64N(2))
		if dice.IntN(200) == 0 || jump > 1e6 && dice.IntN(10) == 0 {
			clk.now.Add(dice.Int64N(jump))
		}
		op := draw(dice, clk.now.Load())
		before := m.cells(&op)
		a, b := outcome(t.Context(), m, op), outcome(t.Context(), direct, op)
		if a != b {
			t.Fatalf("operation %d at %d: %+v\nmodel:  %s\ndirect: %s", i, clk.now.Load(), op, a,
				b)
		}
		if m.cells(&op) < before {
			folds++
		}
		for j := range op.Checks {
			c := &op.Checks[j]
			if want, got := listed(m.key(c).cells), held(t, store, c); want != got {
				t.Fatalf("operation %d at %d: %+v\nmodel:  %s\ndirect: %s", i, clk.now.Load(), op,
					want, got)
			}
		}
	}
	t.Logf("%d operations folded cells or took back", folds)
}

// cells returns how many cells the keys of an operation have.
func (m *model) cells(op *twotier.Op) (n int) {
	for i := range op.Checks {
		n += len(m.key(&op.Checks[i]).cells)
	}
	return n
}

// held lists the cells that Redis has of a check's key.
func held(t *testing.T, s *redisstore.Store, c *twotier.Check) string {
	t.Helper()
	place, ns := twotier.Placement{Partitions: twotier.DefaultPartitions}, c.NS
	if string(ns) == twotier.DefaultNamespace {
		ns = nil
	}
	flat, err := s.Client().Do(t.Context(), "HGETALL",
		redisstore.Key(place.Of(ns, c.Key), ns, c.Key)).Slice()
	if err != nil {
		t.Fatal(err)
	}
	var cells []leaparray.Cell
	for _, b := range layout.ParseBuckets(flat, nil) {
		cells = append(cells, leaparray.Cell{Stretch: b.Stretch, N: b.N})
	}
	return listed(cells)
}

// listed formats cells in the order of their starts.
func listed(cells []leaparray.Cell) (text string) {
	cells = slices.Clone(cells)
	slices.SortFunc(cells, func(a, b leaparray.Cell) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Width, b.Width))
	})
	for _, c := range cells {
		text += fmt.Sprintf("%d at %d (%d ms), ", c.N, c.Start, c.Width)
	}
	return text
}
