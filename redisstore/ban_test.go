package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// TestDirectBanKeepsItsEnd changes the length in a rule: a longer one revives no ban, and a shorter
// one ends none.
func TestDirectBanKeepsItsEnd(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	now := clk.now.Load()
	ask := func(key string, n int64, length time.Duration) (ban *twotier.CheckResult) {
		t.Helper()
		key = "k" + key
		op := twotier.Op{Kind: twotier.Acquire, DryRun: n == 1, Checks: []twotier.Check{
			check(key, n, 1000, 1),
			{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1},
				Limits: limits(length.Milliseconds(), 0)}}}
		op.Checks[1].NS, op.Checks[1].Key = twotier.BanKey(nil, "rule", []byte(key))
		res := do(t, d, op)
		return &res.Checks[1]
	}
	for i, test := range []struct{ length, changed time.Duration }{
		{2 * time.Second, time.Hour}, {2 * time.Second, 24 * time.Hour},
		{time.Hour, 2 * time.Second}, {2 * time.Hour, 2 * time.Second},
		{24 * time.Hour, time.Minute}, {time.Hour, 24 * time.Hour},
	} {
		now += 123
		clk.now.Store(now)
		key := fmt.Sprint(i)
		end := ask(key, 2, test.length).Limits[0].Hi
		if length := test.length.Milliseconds(); end != now+length {
			t.Fatalf("%+v: a ban of %d ms", test, end-now)
		}
		for _, at := range []int64{now + 1, end - 1, end, end + 1000, end + 3_500_000} {
			clk.now.Store(at)
			if r := ask(key, 1, test.changed); r.Refused != (at < end) ||
				r.Refused && (r.Limits[0].Hi != end || r.RetryAfter != end-at) {
				t.Errorf("%+v: %d ms before the end: %+v", test, end-at, r)
			}
		}
	}
}

// TestBansLiveAsLongAsTheyLast: the key of a ban lives as long as the ban ladder needs it, whatever
// the ladder of the banned key's namespace.
func TestBansLiveAsLongAsTheyLast(t *testing.T) {
	t.Parallel()
	expiries(t, testBansLive)
}

func testBansLive(t *testing.T, open opener) {
	short := ladderOf(t, leaparray.Level{Width: 100 * time.Millisecond, Count: 20})
	s := open(t, redisstore.Options{Ladders: map[string]*leaparray.Ladder{
		twotier.DefaultNamespace: short, "shop": defaultLadder(t)}})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	place := twotier.Placement{Partitions: twotier.DefaultPartitions}
	for i, ns := range []string{"", "shop", "of nobody"} {
		ban := twotier.Check{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1},
			Limits: limits(twotier.MaxBan.Milliseconds(), 0)}
		key := check(fmt.Sprint("k", i), 2, 1000, 1)
		key.NS = []byte(ns)
		ban.NS, ban.Key = twotier.BanKey(key.NS, "rule", key.Key)
		if res := acquire(t, d, key, ban); !res.Checks[1].Refused {
			t.Fatalf("no ban has started: %+v", res)
		}
		name := redisstore.Key(place.Of(ban.NS, ban.Key), ban.NS, ban.Key)
		ttl, err := s.Client().PTTL(t.Context(), name).Result()
		most := syncer.KeyTTL(syncer.CompanionLadders()[twotier.BanNamespace])
		if err != nil || ttl < twotier.MaxBan || ttl.Milliseconds() > most {
			t.Errorf("a ban in %q lives for %v, %v", ns, ttl, err)
		}
	}
}
