package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

func clusterClient(t *testing.T, c *redistest.Cluster, user, password string) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: user,
		Password: password})
	t.Cleanup(func() { client.Close() })
	return client
}

// within calls f until it returns nil, and fails the test if that takes too long.
func within(t *testing.T, d time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %v", d, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestClusterWithoutReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	if want := "redis+cluster://" + strings.Join(c.Addrs(), ","); c.URL() != want ||
		len(c.Addrs()) != 3 {
		t.Errorf("URL is %s, want %s", c.URL(), want)
	}
	client := clusterClient(t, c, "", "")
	owners := make(map[*redistest.Server]int)
	for i := range 100 {
		key := fmt.Sprint("key", i)
		must.Succeed(t, client.Set(t.Context(), key, i, 0).Err())
		owners[c.Owner(t, c.Slot(t, key))]++
	}
	if len(owners) != 3 || len(c.Primaries(t)) != 3 {
		t.Errorf("%d of %d primaries have keys, want 3 of 3", len(owners), len(c.Primaries(t)))
	}
	t.Run("migration", func(t *testing.T) { testMigration(t, c, client) })
	t.Run("primary down and back", func(t *testing.T) {
		slot := c.Slot(t, "key1")
		old := c.KillPrimary(t, slot)
		old.Restart(t)
		c.WaitReady(t)
		if c.Owner(t, slot) != old {
			t.Error("the slot has another owner")
		}
	})
}

// testMigration pauses in the middle of a migration to check the replies to a client.
func testMigration(t *testing.T, c *redistest.Cluster, client *redis.ClusterClient) {
	const keys = 10
	slot := c.Slot(t, "{tag}")
	from := c.Owner(t, slot)
	var to *redistest.Server
	for _, to = range c.Primaries(t) {
		if to != from {
			break
		}
	}
	name := func(i int) string { return fmt.Sprintf("{tag}%d", i) }
	for i := range keys {
		set(t, from, name(i), "v")
	}
	c.SetMigrating(t, slot, from, to)
	if got := c.MigrateKeys(t, slot, from, to, 4); got != 4 {
		t.Errorf("%d keys moved, want 4", got)
	}
	asked := 0
	for i := range keys {
		if err := from.Do("GET", name(i)).Err(); err != nil &&
			strings.HasPrefix(err.Error(), "ASK ") {
			asked++
		}
	}
	if asked != 4 {
		t.Errorf("%d keys are answered with ASK, want 4", asked)
	}
	all := []any{"MGET"}
	for i := range keys {
		all = append(all, name(i))
	}
	if err := from.Do(all...).Err(); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("several keys: %v, want TRYAGAIN", err)
	}
	c.MigrateSlot(t, slot, from, to)
	if err := from.Do("GET", name(0)).Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "MOVED ") {
		t.Errorf("afterwards: %v, want MOVED", err)
	}
	if c.Owner(t, slot) != to {
		t.Error("the slot has not moved")
	}
	for i := range keys {
		if got, err := client.Get(t.Context(), name(i)).Result(); got != "v" {
			t.Errorf("%s is %q, %v", name(i), got, err)
		}
	}
}

func TestClusterWithReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, redistest.ACL("alice", "secret"))
	client := clusterClient(t, c, "alice", "secret")
	const key = "key"
	slot := c.Slot(t, key)
	first := c.Owner(t, slot)
	replicas := c.Replicas(t, first)
	if len(c.Nodes) != 6 || len(replicas) != 1 {
		t.Fatalf("%d nodes, %d replicas, want 6 and 1", len(c.Nodes), len(replicas))
	}
	must.Succeed(t, client.Set(t.Context(), key, "v", 0).Err())
	c.Failover(t, replicas[0])
	if c.Owner(t, slot) != replicas[0] {
		t.Error("the replica has not taken over")
	}
	second := c.KillPrimary(t, slot)
	if got := c.WaitPromotion(t, slot, second); got != first {
		t.Errorf("promoted %s, want %s", got.Addr(), first.Addr())
	}
	within(t, 20*time.Second, func(ctx context.Context) error { return client.Get(ctx, key).Err() })
	second.Restart(t)
	c.WaitReady(t)
	if got := c.Replicas(t, first); len(got) != 1 || got[0] != second {
		t.Errorf("the old primary is not its successor's replica: %v", got)
	}
}

func TestClusterTLS(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 1, redistest.TLS())
	slot := c.Slot(t, "k")
	from := c.Owner(t, slot)
	set(t, from, "k", "v")
	for _, to := range c.Primaries(t) {
		if to != from {
			c.MigrateSlot(t, slot, from, to)
			if got := get(t, to, "k"); got != "v" {
				t.Errorf("k is %q", got)
			}
		}
	}
}

func TestSentinel(t *testing.T) {
	for _, tt := range []struct {
		name, user, password, scheme string
		opts                         []redistest.Option
	}{
		{"plain", "", "", "redis+sentinel://", nil},
		{"acl", "alice", "secret", "redis+sentinel://alice:secret@",
			[]redistest.Option{redistest.ACL("alice", "secret"), redistest.AOF()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinel(t, tt.opts...)
			if want := tt.scheme + strings.Join(s.Addrs(), ",") + "/" + s.Name; s.URL() != want ||
				len(s.Addrs()) != 3 {
				t.Errorf("URL is %s, want %s", s.URL(), want)
			}
			client := redis.NewFailoverClient(&redis.FailoverOptions{
				SentinelAddrs: s.Addrs(), MasterName: s.Name, Username: tt.user,
				Password: tt.password,
			})
			defer client.Close()
			testPromotion(t, s, client)
		})
	}
}

// testPromotion kills the primary and brings it back.
func testPromotion(t *testing.T, s *redistest.Sentinel, client *redis.Client) {
	must.Succeed(t, client.Set(t.Context(), "k", "v", 0).Err())
	if n, err := s.Nodes[0].Do("WAIT", 1, 5000).Int(); n != 1 {
		t.Fatalf("the replica has not confirmed: %d, %v", n, err)
	}
	old := s.KillPrimary(t)
	if old != s.Nodes[0] {
		t.Errorf("killed %s, want the first", old.Addr())
	}
	promoted := s.WaitPromotion(t, old)
	if got := get(t, promoted, "k"); got != "v" {
		t.Errorf("k is %q", got)
	}
	set(t, promoted, "k", "w")
	within(t, 20*time.Second, func(ctx context.Context) error {
		got, err := client.Get(ctx, "k").Result()
		if err == nil && got != "w" {
			err = errors.New("still " + got)
		}
		return err
	})
	old.Restart(t)
	s.WaitReady(t)
	if s.Primary(t) != promoted {
		t.Error("the old primary is back in charge")
	}
}
