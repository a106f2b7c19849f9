package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

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

func TestConformanceMiniredis(t *testing.T) {
	race.SkipLong(t)
	t.Parallel()
	storetest.Run(t, func(t *testing.T) syncer.Store {
		return tellingStore{open(t, redisstore.Options{URL: "redis://" + miniredis.RunT(t).Addr(),
			Timeout: time.Minute})}
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
