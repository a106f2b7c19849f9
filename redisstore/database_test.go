package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

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
