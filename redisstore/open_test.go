package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

func defaultLadder(t testing.TB) *leaparray.Ladder {
	return ladderOf(t, leaparray.DefaultLevels()...)
}

func ladderOf(t testing.TB, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(leaparray.DefaultExact, levels...)
	must.Succeed(t, err)
	return l
}

// prefix names the keys of stores whose options have no prefix.
const prefix = layout.DefaultPrefix

// second is the tests' bucket when the choice does not matter.
var second = leaparray.Stretch{Start: 1_763_000_000_000, Width: 1000}

func counts(at leaparray.Stretch, n int64) syncer.Bucket {
	return syncer.Bucket{Stretch: at, N: n}
}

func ladders(l *leaparray.Ladder) map[string]*leaparray.Ladder {
	return map[string]*leaparray.Ladder{twotier.DefaultNamespace: l}
}

// open returns a store that is closed with the test. It fills in the ladders, and a timeout that is
// long enough for a busy machine.
func open(t testing.TB, opt redisstore.Options) *redisstore.Store {
	t.Helper()
	if opt.Ladders == nil {
		opt.Ladders = ladders(defaultLadder(t))
	}
	if opt.Timeout == 0 {
		opt.Timeout = 5 * time.Second
	}
	s, err := redisstore.New(opt)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// started opens a store of a server of its own.
func started(t testing.TB) (*redistest.Server, *redisstore.Store) {
	t.Helper()
	srv := redistest.Start(t)
	return srv, open(t, redisstore.Options{URL: srv.URL()})
}

func flushAll(t testing.TB, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		must.Succeed(t, s.Do("FLUSHALL").Err())
	}
}

// tellingStore gives the conformance suite a view of Redis.
type tellingStore struct {
	*redisstore.Store
}

var (
	_ storetest.TTLer   = tellingStore{}
	_ storetest.Spoiler = tellingStore{}
)

func (s tellingStore) TTL(t testing.TB, partition int, ns, key []byte) time.Duration {
	t.Helper()
	d, err := s.Client().PTTL(context.Background(), s.Name(partition, ns, key)).Result()
	must.Succeed(t, err)
	return max(0, d)
}

func (s tellingStore) Spoil(t testing.TB, partition int, ns, key []byte) {
	t.Helper()
	must.Succeed(t, s.Client().LPush(context.Background(), s.Name(partition, ns, key),
		"x").Err())
}

// reach describes in one line where a client will connect to.
func reach(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.ClusterClient:
		o := c.Options()
		return fmt.Sprintf("cluster %s as %s:%s tls=%v", strings.Join(o.Addrs, ","), o.Username,
			o.Password, o.TLSConfig != nil)
	case *redis.Client:
		o := c.Options()
		return fmt.Sprintf("%s db=%d as %s:%s tls=%v", o.Addr, o.DB, o.Username, o.Password,
			o.TLSConfig != nil)
	}
	return fmt.Sprintf("%T", client)
}

func TestURL(t *testing.T) {
	for _, tc := range []struct{ url, kind, address, reach string }{
		{"redis://localhost", "redis", "localhost", "localhost:6379 db=0 as : tls=false"},
		{"redis://alice:s3cret@h/3", "redis", "h", "h:6379 db=3 as alice:s3cret tls=false"},
		{"rediss://h:7000", "redis", "h:7000", "h:7000 db=0 as : tls=true"},
		{"unix://alice:s3cret@/run/redis.sock?db=2", "redis", "/run/redis.sock",
			"/run/redis.sock db=2 as alice:s3cret tls=false"},
		{"redis+cluster://a,b:7001", "redis-cluster", "a,b:7001",
			"cluster a:6379,b:7001 as : tls=false"},
		{"redis+cluster://a", "redis-cluster", "a", "cluster a:6379 as : tls=false"},
		{"rediss+cluster://u:p@a:1", "redis-cluster", "a:1", "cluster a:1 as u:p tls=true"},
		{"redis+sentinel://a,b:7/main", "redis-sentinel", "a,b:7",
			"FailoverClient db=0 as : tls=false"},
		{"rediss+sentinel://u:p@a/main/4", "redis-sentinel", "a",
			"FailoverClient db=4 as u:p tls=true"},
	} {
		s := open(t, redisstore.Options{URL: tc.url})
		if got := reach(s.Client()); got != tc.reach {
			t.Errorf("%s reaches %s, want %s", tc.url, got, tc.reach)
		}
		h := s.Health()
		if h.Kind != tc.kind || h.Address != tc.address || h.Err == nil {
			t.Errorf("%s: %+v, want kind %s, address %s, and not up", tc.url, h, tc.kind,
				tc.address)
		}
	}
}

func TestURLErrors(t *testing.T) {
	const want = `redis URL "redis://u:xxxxx@h/x": database "x", want a number`
	_, err := redisstore.New(redisstore.Options{URL: "redis://u:s3cret@h/x",
		Ladders: ladders(defaultLadder(t))})
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestOptionErrors(t *testing.T) {
	const want = `redisstore: expiry "never", want key, field or tairhash`
	_, err := redisstore.New(redisstore.Options{URL: "redis://h", Expiry: "never",
		Ladders: ladders(defaultLadder(t))})
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, prefix := range []string{"a:", "a{", "}", "a*", " ", "ä", strings.Repeat("x", 33)} {
		want := fmt.Sprintf("redisstore: prefix: %q is not 1 to 32 letters, digits, dots, dashes "+
			"and underscores", prefix)
		_, err := redisstore.New(redisstore.Options{URL: "redis://h", Prefix: prefix,
			Ladders: ladders(defaultLadder(t))})
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := redisstore.New(redisstore.Options{URL: "redis://h"}); err == nil {
		t.Error("no ladders are accepted")
	}
}

// TestHoldSecretIsShared: the first store writes a secret and all others read it. After a loss, one
// that has it writes it again, together with the rest.
func TestHoldSecretIsShared(t *testing.T) {
	srv := redistest.Start(t)
	secretOf := func(s *redisstore.Store) []byte {
		t.Helper()
		must.Succeed(t, s.Probe(t.Context()))
		return s.HoldSecret()
	}
	first := open(t, redisstore.Options{URL: srv.URL()})
	secret := secretOf(first)
	other := open(t, redisstore.Options{URL: srv.URL()})
	if len(secret) < 32 || !bytes.Equal(secretOf(other), secret) {
		t.Errorf("%x is not everybody's", secret)
	}
	flushAll(t, srv)
	must.Succeed(t, first.EnsureAgreement(t.Context()))
	if !bytes.Equal(secretOf(open(t, redisstore.Options{URL: srv.URL()})), secret) {
		t.Error("it was not restored")
	}
}

// TestOlderHoldSecretStays: Redis loses its data, and a new store with the same seed writes another
// secret before one that has the old secret notices. The old one comes back.
func TestOlderHoldSecretStays(t *testing.T) {
	srv := redistest.Start(t)
	older := open(t, redisstore.Options{URL: srv.URL()})
	must.Succeed(t, older.Probe(t.Context()))
	secret := older.HoldSecret()
	flushAll(t, srv)
	time.Sleep(2 * time.Millisecond) // secrets of one millisecond are equally old
	younger := open(t, redisstore.Options{URL: srv.URL()})
	must.Succeed(t, younger.Probe(t.Context()))
	if bytes.Equal(younger.HoldSecret(), secret) {
		t.Fatal("two stores have drawn the same secret")
	}
	must.Succeed(t, older.EnsureAgreement(t.Context()))
	must.Succeed(t, younger.EnsureAgreement(t.Context()))
	for name, s := range map[string]*redisstore.Store{"older": older, "younger": younger} {
		if !bytes.Equal(s.HoldSecret(), secret) {
			t.Errorf("the %s one has another secret", name)
		}
	}
}

// TestDatabasesOfACluster counts the same key in two databases of a stand-in for a cluster of
// Valkey 9, which has several, over several connections. Each database has only its own counts.
func TestDatabasesOfACluster(t *testing.T) {
	t.Parallel()
	node := miniredis.RunT(t)
	url := "redis+cluster://" + node.Addr()
	other := open(t, redisstore.Options{URL: url + "/2"})
	inSecondDatabase(t, other)
	if n := node.TotalConnectionCount(); n < 2 {
		t.Errorf("only %d connection was opened", n)
	}
	if all := node.DB(0).Keys(); len(all) > 0 {
		t.Errorf("database 0 has %s", all)
	}
	works(t, open(t, redisstore.Options{URL: url}))
	for database, want := range map[int]int64{0: 1, 2: 2} {
		if n := eventsIn(node.DB(database), other.Address("a")); n != want {
			t.Errorf("database %d has %d, want %d", database, n, want)
		}
	}
}

// inSecondDatabase counts two events of the key "a", and adds values of many keys at once.
func inSecondDatabase(t *testing.T, s *redisstore.Store) {
	t.Helper()
	works(t, s)
	r := oneRound(s, "a", 2)
	if send(t, s, r); r.Err != nil {
		t.Fatal(r.Err)
	}
	var adding sync.WaitGroup
	for i := range 50 {
		adding.Go(func() {
			r := &syncer.Round{Partition: i, Writer: "values", Seq: 1, Keys: []syncer.KeyRound{
				{Key: []byte("b"), Adds: []syncer.Bucket{counts(leaparray.ValueAt(64), t0)}}}}
			if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	adding.Wait()
}

// TestDatabasesOfValkey counts the same keys in two databases of a real cluster, in both modes.
func TestDatabasesOfValkey(t *testing.T) {
	t.Parallel()
	const setting = "cluster-databases"
	server := redistest.Start(t).Client(t)
	if has, err := server.ConfigGet(t.Context(), setting).Result(); err != nil || len(has) == 0 {
		t.Skip("the clusters of this server have one database. Valkey from 9 has several; " +
			"TWOTIER_TEST_REDIS names another server")
	}
	c := redistest.StartCluster(t, 3, 0, redistest.Config(setting+" 16"))
	other := open(t, redisstore.Options{URL: c.URL() + "?db=2"})
	inSecondDatabase(t, other)
	first := open(t, redisstore.Options{URL: c.URL()})
	works(t, first)
	for s, want := range map[*redisstore.Store]int64{first: 1, other: 2} {
		d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
		for n := range want {
			do(t, d, twotier.Op{Kind: twotier.Acquire,
				Checks: []twotier.Check{check("c", 1, 60_000, n+1)}})
		}
		hi(t, d, "c", want)
	}
	for database, want := range map[int]int64{0: 1, 2: 2} {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(),
			OnConnect: func(ctx context.Context, conn *redis.Conn) error {
				return conn.Select(ctx, database).Err()
			}})
		defer client.Close()
		flat, err := client.Do(t.Context(), "HGETALL", other.Address("a")).Slice()
		n := contentOf(layout.ParseContent(flat, nil).Buckets)[second]
		if n != want || err != nil {
			t.Errorf("database %d has %d, %v, want %d", database, n, err, want)
		}
	}
}

// TestRefusedDatabases asks a Redis Cluster for a database that it can't have, and a server for one
// that it does not have. The refusal is permanent, and names the remedies.
func TestRefusedDatabases(t *testing.T) {
	t.Parallel()
	for url, remedies := range map[string][]string{
		redistest.StartCluster(t, 1, 0).URL() + "/2": {"a Redis Cluster has only database 0: leave",
			"cluster-databases"}, // Redis's, Valkey's
		redistest.Start(t).URL() + "/99": {"name a lower number", "name a lower number"},
	} {
		s := open(t, redisstore.Options{URL: url})
		err := probe(t, s)
		if !errors.Is(err, redisstore.ErrRejected) ||
			!strings.Contains(err.Error(), "--redis-prefix") ||
			!strings.Contains(err.Error(), remedies[0]) &&
				!strings.Contains(err.Error(), remedies[1]) {
			t.Errorf("%s: %v, want one of %q", url, err, remedies)
		}
		if _, err := s.Examine(t.Context()); !errors.Is(err, redisstore.ErrRejected) {
			t.Errorf("%s, examined: %v", url, err)
		}
	}
}
