package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
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
