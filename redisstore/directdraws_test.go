package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/leaparray"
)

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

// mostValues is how many values a key keeps in random operations, by namespace.
var mostValues = map[string]int{"default": 12, "other": 5}

// opWithValues is randomOp with checks of different values of the same keys. An add or a count has
// such a check in place of its own.
func opWithValues(dice *rand.Rand, now int64) twotier.Op {
	op := randomOp(dice, now)
	switch {
	case dice.IntN(6) == 0 || op.TakesNewest():
	case op.Kind == twotier.Acquire:
		for _, c := range op.Checks {
			if c.Kind == twotier.EventCheck && c.N > 0 && dice.IntN(3) > 0 {
				op.Checks = append(op.Checks, valuesOf(dice, &op, &c, now))
			}
		}
	default:
		op.Checks[0] = valuesOf(dice, &op, &op.Checks[0], now)
	}
	return op
}

// valuesOf returns a check of different values of a check's key, in windows that the ladders reach.
func valuesOf(dice *rand.Rand, op *twotier.Op, c *twotier.Check, now int64) twotier.Check {
	v := twotier.Check{Kind: twotier.ValuesCheck}
	v.NS, v.Key = twotier.ValuesKey(c.NS, c.Key)
	least := 0
	if op.Kind == twotier.Add {
		least = 1
	}
	for range least + dice.IntN(5) {
		v.Values = append(v.Values, leaparray.CleanHash(dice.Uint64N(40)<<dice.IntN(3)))
	}
	slices.Sort(v.Values)
	v.Values = slices.Compact(v.Values)
	if op.Kind == twotier.Count {
		v.Values = nil
	}
	v.N = int64(len(v.Values))
	reach := shortLevels()[2].Span().Milliseconds()
	if op.TS != 0 {
		reach -= max(0, now-op.TS)
	}
	for _, window := range []int64{1, 777, 3000, 20_000, 50_000} {
		if window <= reach && dice.IntN(2) == 0 {
			v.Limits = append(v.Limits, twotier.Limit{Window: window, Max: 1 + dice.Int64N(16)})
		}
	}
	return v
}

// opByFewRules returns an operation on one of a few keys, with one of a few sets of limits.
func opByFewRules(dice *rand.Rand, now int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Acquire}
	op.TS = now - dice.Int64N(3)*dice.Int64N(2)
	if dice.IntN(20) == 0 {
		op.TS = now - dice.Int64N(3000)
	}
	if dice.IntN(10) == 0 {
		op.Kind = twotier.Add
	}
	rules := [][]twotier.Limit{limits(1500, 9, 9000, 30), limits(1900, 6, 50_000, 90, 20_000, 60)}
	for range 1 + dice.IntN(8)/7 {
		c := check(fmt.Sprint("k", dice.IntN(3)), 1+dice.Int64N(8)/7)
		c.Limits = rules[dice.IntN(10)/9]
		op.Checks = append(op.Checks, c)
	}
	if op.Kind == twotier.Add {
		op.Checks = op.Checks[:1]
		if dice.IntN(2) == 0 {
			op.Checks[0].N = -1 - dice.Int64N(3)
		}
	}
	return op
}
