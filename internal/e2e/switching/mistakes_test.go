package switching

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
)

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
