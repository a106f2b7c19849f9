package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
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

// values returns a check of different values of a key.
func values(key string, limits []twotier.Limit, hashes ...uint64) twotier.Check {
	c := twotier.Check{Kind: twotier.ValuesCheck, Values: hashes, N: int64(len(hashes)),
		Limits: limits}
	c.NS, c.Key = twotier.ValuesKey(nil, []byte(key))
	return c
}

// countValues counts the different values of a key within a minute.
func countValues(t *testing.T, d doer, key string) int64 {
	t.Helper()
	op := twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{values(key, limits(60_000, 0))}}
	return do(t, d, op).Checks[0].Limits[0].Count
}

// TestDirectSeesValuesLast acquires values over two slots of a cluster. The key of the other slot
// refuses them at first: then they are not seen, and nothing counts with them.
func TestDirectSeesValuesLast(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.StartCluster(t, 2, 0).URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	key := elsewhere(s, "other", "k")
	add(t, d, key, 1, 0)
	for _, limit := range []int64{0, 1} {
		seen := values(key, limits(60_000, 5), 64, 1<<63)
		res := acquire(t, d, seen, check(key, 1, 60_000, 5), check("other", 1, 60_000, limit))
		if got := countValues(t, d, key); res.Allowed != (limit > 0) || got != 2*limit {
			t.Errorf("limit %d: %d values, %+v", limit, got, res)
		}
		n, told := count(t, d, key, 60_000), res.Checks[1].Limits[0].Count
		if n != 1+limit || told != n {
			t.Errorf("limit %d: %d counted with them, the answer has %d", limit, n, told)
		}
	}
	// What refuses is a part with values, after the other key has counted.
	res := acquire(t, d, values(key, limits(60_000, 2), 65), check("other", 1, 60_000, 9))
	if got := count(t, d, "other", 60_000); res.Allowed || got != 1 {
		t.Errorf("%d counted, %+v", got, res)
	}
	// Both have values: those of the first are seen.
	res = acquire(t, d, values(key, limits(60_000, 9), 66), values("other", limits(60_000, 0), 64))
	if got := countValues(t, d, key); res.Allowed || got != 3 || res.Checks[0].TS != t0 {
		t.Errorf("%d values, %+v", got, res)
	}
}

// TestDirectValuesAreBounded sees a new value each second, for several windows. Values that have
// left every window are deleted, and the key lives as long as they need it.
func TestDirectValuesAreBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	clk := newClock(t0)
	s := open(t, redisstore.Options{URL: srv.URL(),
		Ladders: ladders(ladderOf(t, shortLevels()...))})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	span := shortLevels()[2].Span()
	seen := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{values("k", nil, 0)}}
	c := &seen.Checks[0]
	name := s.Name(s.Placement().Of(c.NS, c.Key), c.NS, c.Key)
	for i := range uint64(200) {
		clk.now.Add(1000)
		c.Values[0] = 1<<63 + i
		do(t, d, seen)
		n, err := srv.Do("HLEN", name).Int64()
		// An eighth of them may be idle. The key has a version.
		if most := span/time.Second + 3; err != nil || n > int64(most*8/7+2) {
			t.Fatalf("value %d: %d fields, %v", i, n, err)
		}
		ttl, err := srv.Do("PTTL", name).Int64()
		if err != nil || time.Duration(ttl)*time.Millisecond < span {
			t.Fatalf("value %d: it lives for %d ms, %v", i, ttl, err)
		}
		if i%10 == 0 { // as if time had passed
			must.Succeed(t, srv.Do("PEXPIRE", name, 2*span.Milliseconds()).Err())
		}
		if ttl < 19*span.Milliseconds()/10 {
			t.Fatalf("value %d: it lives for %d ms, want twice %v", i, ttl, span)
		}
	}
	// All that a round has left of it is idle, and goes before a late value is written.
	must.Succeed(t, srv.Do("DEL", name).Err())
	now := clk.now.Load()
	now += 6000 - (now-span.Milliseconds())%7000
	old := now - span.Milliseconds() - 3000
	must.Succeed(t, srv.Do("HSET", name, layout.ValueField(99), old).Err())
	clk.now.Store(now)
	seen.TS = now - span.Milliseconds() + 500
	fresh := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load, Writer: "fresh"})
	do(t, fresh, seen)
	if ttl, err := srv.Do("PTTL", name).Int64(); err != nil || ttl <= 0 {
		t.Errorf("a key with a late value lives for %d ms, %v", ttl, err)
	}
	if n := srv.Do("HLEN", name).Val(); n != int64(2) {
		t.Errorf("%v fields, want the value and the version", n)
	}
}

// TestForeignValues has a value of another type in place of a key's values, and a value that was
// seen at no time in those of another. Both are refused when they are read, other keys are not.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL(), Placement: twotier.Placement{Partitions: 1}})
	works(t, s)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	name := func(key string) string {
		ns, k := twotier.ValuesKey(nil, []byte(key))
		return redisstore.Key(0, ns, k)
	}
	must.Succeed(t, srv.Do("SET", name("foreign"), "mine").Err())
	must.Succeed(t, srv.Do("HSET", name("spoiled"),
		layout.ValueField(99), "yesterday").Err())
	r := &syncer.Round{Writer: "other", Seq: 1}
	bad := map[string]string{"foreign": "WRONGTYPE", "spoiled": "count"}
	list := []string{"foreign", "good", "spoiled"}
	for _, key := range list {
		k := syncer.KeyRound{TTL: 3_600_000, Load: true,
			Adds: []syncer.Bucket{counts(leaparray.ValueAt(100), t0)}}
		k.NS, k.Key = twotier.ValuesKey(nil, []byte(key))
		r.Keys = append(r.Keys, k)
	}
	send(t, s, r)
	for i, key := range list {
		k := &r.Keys[i]
		err := errors.Join(k.Err, syncer.CheckCounts(k.Loaded))
		if r.Err != nil || (err != nil) != (bad[key] != "") ||
			err == nil && k.Adds[0].Stored != t0 {
			t.Errorf("%s: %v, %v, %+v", key, r.Err, err, k.Adds)
		}
		for _, op := range []twotier.Op{
			{Kind: twotier.Add, Checks: []twotier.Check{values(key, nil, 101)}},
			{Kind: twotier.Acquire, Checks: []twotier.Check{values(key, limits(1000, 9), 102),
				check("ours", 1, 1000, 9)}},
			{Kind: twotier.Count, Checks: []twotier.Check{values(key, limits(1000, 9))}},
		} {
			var res twotier.Result
			err := d.Do(t.Context(), &op, &res)
			if text := bad[key]; (err != nil) != (text != "") || err != nil &&
				(!errors.Is(err, twotier.ErrUnavailable) || !strings.Contains(err.Error(), text)) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	if n := count(t, d, "ours", 1000); n != 1 {
		t.Errorf("%d events were counted with the values of three keys, want 1", n)
	}
	if text := srv.Do("GET", name("foreign")).Val(); text != "mine" || s.Health().Err != nil {
		t.Errorf("it is %v now, and the store reports %v", text, s.Health().Err)
	}
}
