package switching

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestImportInEveryMode imports twice into servers whose settings concern limits, and into one that
// keeps all counts in Redis.
func TestImportInEveryMode(t *testing.T) {
	for _, flags := range []string{"--mode redis", "--shadow", "--redis-expiry key --ack redis"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, strings.Fields(flags)...)
			want := b.fill(newRand(t), 100)
			first := b.imports("--pattern", "rl:{key}")
			second := b.imports("--pattern", "rl:{key}")
			if first.Counted == 0 || second.Counted != 0 || second.Repeated != first.Counted {
				t.Errorf("%+v, then %+v", first, second)
			}
			b.compare(want)
			b.old.ZAdd(t.Context(), "rl:user5", redis.Z{Member: "new",
				Score: float64(time.Now().UnixMilli())})
			if r := b.imports("--pattern", "rl:{key}"); r.Counted != 1 {
				t.Errorf("one more: %+v", r)
			}
		})
	}
}

// TestImportIntoACluster imports through one of two nodes, and again through the other.
func TestImportIntoACluster(t *testing.T) {
	b := newBed(t, "--gossip", "127.0.0.1:0")
	first := b.server
	b.server = program.Serve(t, proctest.Options{}, "--redis", b.store.URL(), "--node", "b",
		"--gossip", "127.0.0.1:0", "--join", first.Gossip)
	want := b.fill(newRand(t), 300)
	if r := b.imports("--pattern", "rl:{key}"); r.Counted == 0 {
		t.Errorf("%+v", r)
	}
	b.server = first
	if r := b.imports("--pattern", "rl:{key}"); r.Counted != 0 {
		t.Errorf("repeated: %+v", r)
	}
	b.compare(want)
}

// TestImportFromACluster reads all servers of a Redis Cluster.
func TestImportFromACluster(t *testing.T) {
	b := newBed(t)
	cluster := redistest.StartCluster(t, 3, 0)
	old := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Protocol: 2})
	defer old.Close()
	now := time.Now().UnixMilli()
	for i := range 60 {
		if err := old.ZAdd(t.Context(), fmt.Sprint("rl:user", i), redis.Z{
			Score: float64(now - 30_000 - int64(i)), Member: i}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.from = cluster.URL()
	if r := b.imports("--pattern", "rl:{key}", "--rate", "2000"); r.Counted != 60 || r.Keys != 60 {
		t.Errorf("%+v", r)
	}
	if n := b.count("user59", "1h"); n.Max != 1 {
		t.Errorf("%+v", n)
	}
}

// TestImportsAreNoDecisions: marks are in no list of keys, and neither they nor imported events are
// among the verdicts.
func TestImportsAreNoDecisions(t *testing.T) {
	b := newBed(t)
	now := float64(time.Now().UnixMilli())
	b.old.ZAdd(t.Context(), "rl:ann", redis.Z{Score: now, Member: 1}, redis.Z{Score: now,
		Member: 2})
	b.imports("--pattern", "rl:{key}")
	b.imports("--pattern", "rl:{key}") // refused by the mark
	_, refused := b.server.Get("/v1/top?window=1h&by=refused")
	_, text := b.server.Get("/v1/top?window=1h")
	if all := string(text) + string(refused); strings.Contains(all, "@imported") ||
		strings.Contains(string(refused), "ann") || !strings.Contains(string(text), "ann") {
		t.Errorf("top: %s", all)
	}
	decided := func() bool {
		_, text := b.server.Get("/metrics")
		return strings.Contains(string(text), "\ntwotier_decisions_total{")
	}
	if decided() {
		t.Error("imports are among the decisions")
	}
	if b.acquire("ann", "1h", 5); !decided() {
		t.Error("the metric has another name")
	}
}
