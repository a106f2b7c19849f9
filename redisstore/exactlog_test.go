package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// counted is a check that was counted.
type counted struct {
	key   string
	ts, n int64
}

// exactLog holds all counts with exact times. Every answer is compared with it.
type exactLog []counted

// within returns the count of a key between two times, both included.
func (l exactLog) within(key string, from, to int64) (n int64) {
	for _, e := range l {
		if e.key == key && e.ts >= from && e.ts <= to {
			n += e.n
		}
	}
	return n
}

// fullest returns the largest count of a key in any window of this length that contains a time.
func (l exactLog) fullest(key string, window, ts int64) int64 {
	most := l.within(key, ts-window+1, ts)
	for _, e := range l {
		if e.key == key && e.ts > ts && e.ts < ts+window {
			most = max(most, l.within(key, e.ts-window+1, e.ts))
		}
	}
	return most
}

// TestAnswersAgainstExactLog runs random operations in every mode. No true window that contains an
// admitted acquire exceeds one of its limits, a dry run answers as the acquire does, and the number
// of events in a window is never outside the bounds of a read. Where events keep their millisecond,
// limits that are no larger than the number of exact events are decided exactly as by the log.
func TestAnswersAgainstExactLog(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	ladders, spaces := twoSpaces(t)
	clk := newClock(t0)
	inRedis := func(url string) func(t *testing.T) doer {
		return func(t *testing.T) doer {
			s := open(t, redisstore.Options{URL: url, Ladders: ladders})
			return openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
		}
	}
	for _, mode := range []struct {
		name string
		open func(t *testing.T) doer
	}{
		{"memory", func(t *testing.T) doer {
			return openCounter(t, syncer.Options{Store: embedded.New(embedded.Options{}),
				Now: clk.now.Load, Namespaces: spaces})
		}},
		{"Redis", inRedis(redistest.Start(t).URL())},
		{"Redis Cluster", inRedis(redistest.StartCluster(t, 2, 0).URL())},
	} {
		t.Run(mode.name, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(storetest.Seed(t), 8))
			d, log := mode.open(t), exactLog(nil)
			for range *traceOps {
				clk.now.Add(dice.Int64N(300) * dice.Int64N(2))
				if now := clk.now.Load(); dice.IntN(2) == 0 {
					log = log.acquire(t, dice, d, now)
				} else {
					log.count(t, dice, d, now, ladders)
				}
			}
		})
	}
}

// acquire draws an acquire, and judges its answer. It returns the log with the new counts.
func (l exactLog) acquire(t *testing.T, dice *rand.Rand, d doer, now int64) exactLog {
	t.Helper()
	op := twotier.Op{Kind: twotier.Acquire, TS: now}
	if dice.IntN(4) == 0 {
		op.TS += 1500 - dice.Int64N(3000)
	}
	for range 1 + dice.IntN(4) {
		c := check(fmt.Sprint("k", dice.IntN(3)), 1+dice.Int64N(3))
		c.NS = []byte([]string{"", "default", "other"}[dice.IntN(3)])
		for range 1 + dice.IntN(2) {
			c.Limits = append(c.Limits, twotier.Limit{Window: 1 + dice.Int64N(9000),
				Max: 3 + dice.Int64N(40)})
		}
		op.Checks = append(op.Checks, c)
	}
	dry := op
	dry.DryRun = true
	var asked, res twotier.Result
	errAsked, err := d.Do(t.Context(), &dry, &asked), d.Do(t.Context(), &op, &res)
	if errors.As(err, new(*twotier.InvalidError)) && errAsked != nil {
		return l
	}
	if errAsked != nil || err != nil || asked.Allowed != res.Allowed {
		t.Fatalf("%+v: %v %+v, as a dry run %v %+v", op, err, res, errAsked, asked)
	}
	l.decidesAlike(t, &op, &res)
	if !res.Allowed {
		return l
	}
	for i := range op.Checks {
		c := &op.Checks[i]
		l = append(l, counted{string(c.AppendName(nil)), op.TS, c.N})
	}
	for i := range op.Checks {
		c := &op.Checks[i]
		for _, limit := range c.Limits {
			if n := l.fullest(string(c.AppendName(nil)), limit.Window, op.TS); n > limit.Max {
				t.Fatalf("%d of %d in %d ms: %+v", n, limit.Max, limit.Window, op)
			}
		}
	}
	return l
}

// decidesAlike compares the reported result of each limit of an acquire with the log, where events
// keep their millisecond.
func (l exactLog) decidesAlike(t *testing.T, op *twotier.Op, res *twotier.Result) {
	t.Helper()
	for i := range op.Checks {
		c := &op.Checks[i]
		if string(c.NS) == "other" {
			continue
		}
		for _, lr := range res.Checks[i].Limits { // none if another partition has refused
			name, n := string(c.AppendName(nil)), sumOf(op, i)
			there := l.fullest(name, lr.Window, op.TS)
			counted := lr.Count
			if res.Allowed {
				counted -= n
			}
			if lr.Refused != (there+n > lr.Max) || counted != there {
				t.Fatalf("%d of %s are there, %d come: %+v, %+v", there, name, n, lr, op)
			}
		}
	}
}

// count draws a read of windows that often begin or end at the edge of a bucket, and judges its
// answer.
func (l exactLog) count(t *testing.T, dice *rand.Rand, d doer, now int64,
	ladders map[string]*leaparray.Ladder) {
	t.Helper()
	c := check(fmt.Sprint("k", dice.IntN(3)), 0)
	c.NS = []byte([]string{"default", "other"}[dice.IntN(2)])
	ladder := ladders[string(c.NS)]
	edge := func(ms int64) int64 {
		width := ladder.Width(dice.IntN(ladder.Len()))
		return min(now, ms-ms%width-1+dice.Int64N(3))
	}
	op := twotier.Op{Kind: twotier.Count}
	at := now
	if dice.IntN(2) == 0 {
		at = edge(now - dice.Int64N([]int64{300, 3000}[dice.IntN(2)]))
		op.TS = at
	}
	for range 3 {
		window := max(1, at-edge(at-1-dice.Int64N([]int64{100, 9000}[dice.IntN(2)])))
		c.Limits = append(c.Limits, twotier.Limit{Window: window})
	}
	op.Checks = []twotier.Check{c}
	for i, lr := range do(t, d, op).Checks[0].Limits {
		window := c.Limits[i].Window
		name := string(c.AppendName(nil))
		n := l.within(name, at-window+1, at)
		exact := ladder.ExactEvents() > 0 &&
			l.within(name, at-window+1, now+2000) < int64(ladder.ExactEvents())
		if n < lr.Lo || n > lr.Hi || exact && (lr.Lo != n || lr.Hi != n) {
			t.Fatalf("%d ms up to %d ms before %d: %d events, but %+v", window, now-at, now, n, lr)
		}
	}
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) syncer.Store {
		flushAll(t, srv)
		return losingStore{tellingStore{open(t, redisstore.Options{URL: srv.URL()})}}
	})
}

// losingStore is a store whose server can lose data.
type losingStore struct{ tellingStore }

func (s losingStore) Lose(t testing.TB) {
	t.Helper()
	must.Succeed(t, s.Client().FlushAll(t.Context()).Err())
}

func (s losingStore) Image(t testing.TB) (rewind func()) {
	t.Helper()
	ctx, c := t.Context(), s.Client()
	names, err := c.Keys(ctx, "*").Result()
	dumps, ttls := map[string]string{}, map[string]time.Duration{}
	for _, name := range names {
		if dumps[name], err = c.Dump(ctx, name).Result(); err != nil {
			t.Fatal(err)
		}
		ttls[name] = max(0, c.PTTL(ctx, name).Val())
	}
	must.Succeed(t, err)
	return func() {
		s.Lose(t)
		for name, dump := range dumps {
			must.Succeed(t, c.Restore(ctx, name, ttls[name], dump).Err())
		}
	}
}

// TestConformanceCluster also uses another prefix than the default.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	storetest.Run(t, func(t *testing.T) syncer.Store {
		flushAll(t, c.Nodes...)
		return tellingStore{open(t, redisstore.Options{URL: c.URL(), Prefix: "Shop_2.eu-west"})}
	})
}

func TestConformanceFieldExpiry(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	if !redistest.Features(t, srv).HPExpire {
		t.Skip("this server has no HPEXPIRE: --redis-expiry=field is not tested against it. " +
			"Redis from 7.4 and Valkey from 9 " +
			"have it; TWOTIER_TEST_REDIS names another server")
	}
	storetest.Run(t, func(t *testing.T) syncer.Store {
		flushAll(t, srv)
		return losingStore{tellingStore{open(t,
			redisstore.Options{URL: srv.URL(), Expiry: redisstore.ExpiryField})}}
	})
}

// TestConformanceTairHashStandIn does not run against TairHash: miniredis's plain hashes stand in
// for its commands, without a time to live of fields. It only shows that the scripts use these
// commands as documented, and never EXHINCRBY with a time to live, which a replay gets wrong.
func TestConformanceTairHashStandIn(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	storetest.Run(t, func(t *testing.T) syncer.Store {
		return tellingStore{open(t, redisstore.Options{URL: "redis://" + tairHashStandIn(t),
			Expiry: redisstore.ExpiryTairhash, Timeout: time.Minute})} // it is slow
	})
}

// tairHashStandIn starts a server with the few commands of the module that the scripts use, and
// returns its address.
func tairHashStandIn(t testing.TB) string {
	t.Helper()
	m := miniredis.RunT(t)
	for name, plain := range map[string]string{
		"EXHINCRBY": "HINCRBY", "EXHGET": "HGET", "EXHGETALL": "HGETALL", "EXHDEL": "HDEL",
		"EXHLEN": "HLEN", "EXHSET": "HSET", "EXHMGET": "HMGET", "EXHKEYS": "HKEYS",
	} {
		err := m.Server().Register(name, func(c *server.Peer, _ string, args []string) {
			if (plain == "HINCRBY" || plain == "HSET") && len(args) != 3 {
				c.WriteError("ERR syntax error")
				return
			}
			m.Server().Dispatch(c, append([]string{plain}, args...))
		})
		must.Succeed(t, err)
	}
	err := m.Server().Register("EXHPEXPIRE", func(c *server.Peer, _ string, args []string) {
		if len(args) != 3 {
			c.WriteError("ERR syntax error")
			return
		}
		c.WriteInt(1)
	})
	must.Succeed(t, err)
	return m.Addr()
}

// TestStoredFindsEveryPlacement counts keys with and without hash tags, placed in every way. A
// store with other options finds them, and has written nothing that it would compare.
func TestStoredFindsEveryPlacement(t *testing.T) {
	t.Parallel()
	for _, tags := range []twotier.HashTags{nil, {"sms": true}, {"sms": true, "login": true},
		{"default": true}, {"default": true, "login": false, "sms": false}} {
		for _, expiry := range redistest.Expiries(t, redistest.Start(t)) {
			srv := redistest.Start(t)
			other := open(t, redisstore.Options{URL: srv.URL(), Prefix: "staging"})
			if got, err := other.Stored(t.Context(), nil, []byte("k")); err != nil || got != nil {
				t.Fatalf("%v, %v before anything is counted", got, err)
			}
			s := open(t, redisstore.Options{URL: srv.URL(), Prefix: "staging",
				Expiry: redisstore.Expiry(expiry), Placement: twotier.Placement{
					Partitions: 1021, Seed: 1<<64 - 5, HashTags: tags}})
			works(t, s)
			for i, ns := range []string{"", "sms", "login"} {
				for j, key := range []string{"{a}b", "plain"} {
					k := syncer.KeyRound{TTL: 3_600_000, Adds: []syncer.Bucket{
						counts(leaparray.Moment(t0+1), 2), counts(leaparray.Moment(t0), 300),
						counts(leaparray.Stretch{Start: t0 - t0%1000 - 1000, Width: 1000}, 5)}}
					k.NS, k.Key = []byte(ns), []byte(key)
					r := &syncer.Round{Writer: "stored", Seq: uint64(2*i + j + 1),
						Keys: []syncer.KeyRound{k}}
					r.Partition = s.Placement().Of(k.NS, k.Key)
					send(t, s, r)
					got, err := other.Stored(t.Context(), k.NS, k.Key)
					want := []redisstore.StoredCell{{t0 + 1, 1, 2}, {t0, 1, 300},
						{t0 - t0%1000 - 1000, 1000, 5}}
					if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Cells, want) ||
						got[0].Events != 307 || got[0].TTL < 3_500_000 ||
						got[0].Hash != s.Name(r.Partition, k.NS, k.Key) {
						t.Errorf("%q %v %s in %q: %+v, %v", tags, expiry, key, ns, got, err)
					}
				}
			}
		}
	}
}

// TestStoredRefusesOtherLayouts has no wrong answer about data that it can't read.
func TestStoredRefusesOtherLayouts(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	works(t, s)
	for field, bad := range map[string]string{"layout": "3", "partitions": "", "hash-seed": "x"} {
		good := srv.Do("HGET", "tt:meta", field).Val()
		must.Succeed(t, srv.Do("HSET", "tt:meta", field, bad).Err())
		if got, err := s.Stored(t.Context(), nil, []byte("k")); err == nil || got != nil {
			t.Errorf("%s = %q: %v, %v", field, bad, got, err)
		}
		must.Succeed(t, srv.Do("HSET", "tt:meta", field, good).Err())
	}
}
