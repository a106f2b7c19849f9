package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
)

// TestReadsAreBounded counts keys with a wide ladder. One pipeline reads only a few of them.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	wide := ladderOf(t, leaparray.Level{Width: time.Second, Count: 3600},
		leaparray.Level{Width: time.Minute, Count: 1440})
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Ladders: ladders(wide)})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	add(t, d, "warm", 1, 0)
	before := s.Health().RoundTrips
	ops, res := make([]twotier.Op, 24), make([]twotier.Result, 24)
	for i := range ops {
		ops[i] = twotier.Op{Kind: twotier.Count,
			Checks: []twotier.Check{check(fmt.Sprint("k", i), 0, 1000, 0)}}
	}
	d.DoAll(t.Context(), ops, res)
	if n := s.Health().RoundTrips - before; n < 8 {
		t.Errorf("24 keys took %d round trips, want one for at most three keys", n)
	}
}
