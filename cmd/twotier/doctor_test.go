package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/testing/redistest"
)

// diagnose runs doctor and returns its exit status and its findings by subject, without the name of
// the server.
func diagnose(t *testing.T, args ...string) (int, map[string]doctor.Finding) {
	t.Helper()
	status, out, stderr := exec(t, nil, append([]string{"doctor", "--json"}, args...)...)
	var answer struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	about := map[string]doctor.Finding{}
	for _, f := range answer.Findings {
		name, _, _ := strings.Cut(f.About, " of 127.")
		about[name] = f
		if (f.Level == doctor.Fine) != (f.Do == "") {
			t.Errorf("what to do about %+v?", f)
		}
	}
	return status, about
}

// TestDoctorFindsWhatIsWrong has doctor examine Redis servers that are badly configured, each in
// one way. It finds each mistake and names a remedy. It leaves nothing behind in any of them.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	const refused = "commands, permissions and what other nodes have agreed on"
	for name, tt := range map[string]struct {
		server      redistest.Option
		meta        []any  // agreement of earlier nodes
		acl         string // missing permissions of the user
		args        []string
		about, says string
		level       doctor.Level
	}{
		"well": {server: redistest.AOF(), about: "persistence", level: doctor.Fine},
		"eviction": {server: redistest.Config("maxmemory-policy allkeys-lru"), about: "eviction",
			level: doctor.Problem, says: "allkeys-lru"},
		"full": {server: redistest.Config("maxmemory 1mb", "maxmemory-policy noeviction"),
			about: "memory", level: doctor.Problem, says: "MiB used"},
		"volatile": {server: redistest.Config("appendonly no"), about: "persistence",
			level: doctor.Warning, says: "no append-only file"},
		"alone": {server: redistest.AOF(), about: "replicas", level: doctor.Warning, says: "0"},
		"command": {server: redistest.Config(`rename-command HMGET ""`), about: refused,
			level: doctor.Problem, says: "HMGET"},
		"permission": {server: redistest.AOF(), acl: "-hget", about: refused,
			level: doctor.Problem, says: "ACL SETUSER"},
		"no INFO": {server: redistest.AOF(), acl: "-info", about: "INFO", level: doctor.Warning},
		"partitions": {server: redistest.AOF(), meta: []any{"partitions", "7"}, about: refused,
			level: doctor.Problem, says: "partitions = 7"},
		"another service's": {server: redistest.AOF(), meta: []any{"partitions", "7"},
			args: []string{"--redis-prefix", "staging"}, about: refused, level: doctor.Fine},
		"node": {server: redistest.AOF(), args: []string{"--gossip", "127.0.0.1:0", "--join",
			"127.0.0.1:1"}, about: "node at 127.0.0.1:1", level: doctor.Problem, says: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tt.server)
			direct := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer direct.Close()
			if tt.meta != nil {
				if err := direct.HSet(t.Context(), "tt:meta", tt.meta...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.acl != "" {
				if err := direct.Do(t.Context(), "ACL", "SETUSER", "default",
					tt.acl).Err(); err != nil {
					t.Fatal(err)
				}
			}
			before := keysOf(t, direct)
			status, about := diagnose(t, append(tt.args, "--redis", server.URL())...)
			if f := about[tt.about]; f.Level != tt.level || !strings.Contains(f.Found, tt.says) {
				t.Errorf("%+v, want %s about %s with %q", f, tt.level, tt.about, tt.says)
			}
			want := exitOK
			if tt.level == doctor.Problem {
				want = exitFailed
			}
			if status != want {
				t.Errorf("exit status %d, want %d: %v", status, want, about)
			}
			if after := keysOf(t, direct); after != before {
				t.Errorf("it had %s, it has %s", before, after)
			}
		})
	}
}

// keysOf returns the keys of a Redis, and the settings that nodes have agreed on.
func keysOf(t *testing.T, c *redis.Client) string {
	t.Helper()
	keys, err := c.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(keys, c.HGetAll(context.Background(), "tt:meta").Val())
}

// TestDoctorWithoutAnswer has doctor examine a Redis that does not run, one that wants a password,
// and none at all.
func TestDoctorWithoutAnswer(t *testing.T) {
	const gone = "127.0.0.1:1"
	locked := redistest.Start(t, redistest.ACL("alice", "s3cret-s3cret"))
	for url, want := range map[string]string{"redis://" + gone: "connection refused",
		"redis://alice:wr0ng@" + locked.Addr(): "WRONGPASS"} {
		status, out, stderr := exec(t, nil, "doctor", "--redis", url)
		if status != exitFailed || !strings.Contains(out, want) || strings.Contains(out, "wr0ng") {
			t.Errorf("%s: status %d: %s%s", url, status, out, stderr)
		}
	}
	if status, out, _ := exec(t, nil, "doctor"); status != exitOK ||
		!strings.Contains(out, "nothing outlives") || strings.Contains(out, "spans") {
		t.Errorf("status %d: %s", status, out)
	}
	status, out, _ := exec(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317"}, "doctor")
	if status != exitOK || !strings.Contains(out, "OTEL_TRACES_EXPORTER=none") {
		t.Errorf("status %d: %s", status, out)
	}
}
