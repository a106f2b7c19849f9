package switching

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/npm"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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

// TestExpressRateLimit switches over from a server with express-rate-limit, whose counts
// rate-limit-redis keeps.
func TestExpressRateLimit(t *testing.T) {
	b := newBed(t)
	url := startExpress(t, b.from, "60000", "5")
	var got []int
	for range 7 {
		response, err := http.Get(url)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		got = append(got, response.StatusCode)
	}
	if want := []int{200, 200, 200, 200, 200, 429, 429}; !slices.Equal(got, want) {
		t.Fatalf("it answers %v, want %v", got, want)
	}
	end, err := b.old.PExpireTime(t.Context(), "rl:127.0.0.1").Result()
	must.Succeed(t, err)
	args := []string{"--pattern", "rl:{key}", "--as", "ip:{key}", "--format", "fixed",
		"--window", "1m"}
	if r := b.imports(args...); r.Counted != 7 {
		t.Errorf("%+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 || r.Repeated != 7 {
		t.Errorf("repeated: %+v", r)
	}
	before := time.Now().UnixMilli()
	v := b.acquire("ip:127.0.0.1", "1m", 5)
	most, least := end.Milliseconds()-before+20, end.Milliseconds()-time.Now().UnixMilli()-500
	if v.Allowed || v.Retry > most || v.Retry < least {
		t.Errorf("%+v, want a refusal for %d to %d ms", v, least, most)
	}
}

// startExpress starts the server of testdata/express over a Redis, and returns its URL.
func startExpress(t *testing.T, redis, windowMS, limit string) string {
	t.Helper()
	dir := npm.Install(t, filepath.Join("testdata", "express"))
	server := exec.Command("node", "app.mjs", redis, windowMS, limit)
	server.Dir, server.Stderr = dir, os.Stderr
	out, err := server.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	must.Succeed(t, err)
	return "http://127.0.0.1:" + strings.TrimSpace(port) + "/"
}

// TestDryRunShowsMistakes: a dry run shows the name that a key gets and the times of its
// events, and warns of a namespace without rules and of keys that become one.
func TestDryRunShowsMistakes(t *testing.T) {
	b := newBed(t, "--admin-token", "at-least-16-characters")
	apply := b.command()
	apply.Args = []string{apply.Args[0], "rules", "apply", must.File(t, "rules.yaml",
		"rules: [{name: send, namespace: messages, limits: [50/24h]}]\n")}
	apply.Env = append(apply.Env, "TWOTIER_ADMIN_TOKEN=at-least-16-characters")
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	now := time.Now().UnixMilli()
	for i := range int64(3) {
		b.old.ZAdd(t.Context(), "limit:acme:ann", redis.Z{Score: float64(now - 3000 + i*1000),
			Member: i})
	}
	r := b.imports("--pattern", "limit:{tenant}:{key}", "--dry-run", "--ns", "mesages",
		"--until", time.UnixMilli(now-1500).UTC().Format(time.RFC3339Nano))
	if r.Counted != 2 || r.Later != 1 || r.Oldest != now-3000 || r.Newest != now-2000 {
		t.Errorf("%+v, want two events from %d on", r, now-3000)
	}
	if r.First.From != "limit:acme:ann" || r.First.Key != "ann" || r.First.Events != 2 {
		t.Errorf("%+v", r.First)
	}
	const namespace = "no rule counts in namespace mesages; rules count in: messages (--ns)"
	if text := strings.Join(r.Warnings, "\n"); text !=
		"--as has no {tenant}: keys that differ only there become one\n"+namespace {
		t.Errorf("warnings: %s", text)
	}
	r = b.imports("--pattern", "limit:{tenant}:{key}", "--as", "{key}@{tenant}", "--ns", "messages")
	if r.Counted != 3 || r.Newest != now-1000 || len(r.Warnings) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestImportFromNowhere prints only the error, and no log of the Redis client.
func TestImportFromNowhere(t *testing.T) {
	b := newBed(t)
	b.from = "redis://127.0.0.1:1"
	_, err := b.tryImport("--pattern", "rl:{key}")
	if err == nil || !strings.Contains(err.Error(), "redis at redis://127.0.0.1:1") ||
		strings.Contains(err.Error(), ".go:") {
		t.Errorf("%v", err)
	}
}
