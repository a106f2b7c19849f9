package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/doctor"
	"twotier.dev/twotier/internal/testing/must"
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
				must.Succeed(t, direct.HSet(t.Context(), "tt:meta", tt.meta...).Err())
			}
			if tt.acl != "" {
				must.Succeed(t, direct.Do(t.Context(), "ACL", "SETUSER", "default",
					tt.acl).Err())
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
	must.Succeed(t, err)
	return fmt.Sprint(keys, c.HGetAll(context.Background(), "tt:meta").Val())
}

// TestDoctorWithoutAnswer has doctor examine a Redis that does not run, one that wants a password,
// and none at all, without a node.
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
	status, out, _ := exec(t, nil, "doctor", "--listen", gone)
	if status != exitOK || !strings.Contains(out, "nothing outlives") ||
		!strings.Contains(out, "does not run") || strings.Contains(out, "spans") {
		t.Errorf("status %d: %s", status, out)
	}
	status, out, _ = exec(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317"}, "doctor")
	if status != exitOK || !strings.Contains(out, "OTEL_TRACES_EXPORTER=none") {
		t.Errorf("status %d: %s", status, out)
	}
}

// TestStored counts events and values, in both modes, and shows what Redis has of them: times to
// the millisecond, the buckets of a namespace without exact events, a sample of the values, and a
// field that nobody knows. The seed is fixed: under one of 64 no value of "few" is in its sample.
func TestStored(t *testing.T) {
	file := must.File(t, "twotier.yaml", "partitions: 7\nhash-seed: 1\nnamespaces: "+
		"{sms: {hash-tags: true}, wide: {exact: 0, ladder: 1s x 60}, few: {exact-values: 4}}\n")
	changes := regexp.MustCompile(`\{p\d\}|in 1?\d{1,2}h[\dm]+s|in \dm\d+s|"[0-9a-z]{6,}" of|` +
		`"ttl_ms":\d+|"version":"\w+"`)
	for _, mode := range []string{"two-tier", "redis"} {
		server := redistest.Start(t)
		node := startServe(t, t.Context(), "--redis", server.URL(), "--mode", mode,
			"--config", file, "--ack", "redis", "--redis-prefix", "it")
		stored := func(status int, args ...string) string {
			t.Helper()
			got, out, errs := exec(t, []string{"TWOTIER_REDIS=" + server.URL()},
				append([]string{"stored", "--redis-prefix", "it"}, args...)...)
			if got != status || (status == exitOK) != (errs == "") {
				t.Errorf("%s: status %d, %s", args, got, errs)
			}
			return changes.ReplaceAllString(out+errs, "#")
		}
		now := time.Now().UnixMilli()
		text := func(ms int64) string {
			return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000") + "Z"
		}
		post := func(way, ns, key, more string) {
			fetch(t, "POST", node.url+"/v1/"+way,
				fmt.Sprintf(`{"ns":%q,"key":%q,%s}`, ns, key, more))
		}
		for _, of := range []struct{ ns, key string }{{"sms", "{188}:hi"}, {"wide", "188"}} {
			const limit = `"limits":[{"window":"1m","max":50}]`
			post("acquire", of.ns, of.key, fmt.Sprintf(`"n":3,"ts":%d,%s`, now, limit))
			post("acquire", of.ns, of.key, fmt.Sprintf(`"ts":%d,%s`, now-2000, limit))
		}
		post("distinct", "sms", "{188}:hi", `"values":["a","b"],"window":"1h"`)
		post("distinct", "few", "v", `"values":["a","b","c","d","e","f"],"window":"1h"`)
		version, inJSON := "", ""
		if mode == "redis" {
			version, inJSON = ", version # pure-Redis mode", `,#`
		}
		got := stored(exitOK, "{188}:hi", "--ns", "sms")
		want := fmt.Sprintf("\"it:#:sms:{188}:hi\" expires #%s\nTIME                      WIDTH  "+
			"EVENTS\n%s  1ms    3\n%s  1ms    1\ntotal                            4\n"+
			"\"it:#:@values/sms:/{188}:hi\" expires #%[1]s\n2 different values, last seen from ",
			version, text(now), text(now-2000))
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: printed\n%swant\n%s", mode, got, want)
		}
		second := now - now%1000
		got = stored(exitOK, "188", "--ns", "wide", "--json")
		want = fmt.Sprintf(`{"hash":"it:#:wide:188",#%s,"events":4,"cells":[`+
			`{"start_ms":%d,"width_ms":1000,"n":3},{"start_ms":%d,"width_ms":1000,"n":1}],`+
			`"values":0}`+"\n", inJSON, second, second-2000)
		if got != want {
			t.Errorf("%s: printed\n%swant\n%s", mode, got, want)
		}
		if got := stored(exitOK, "v", "--ns", "few"); !strings.Contains(got,
			" different values of a sample, last seen from "+text(now)[:11]) {
			t.Errorf("%s: %s", mode, got)
		}
		if got := stored(exitFailed, "v", "--ns", "sms"); !strings.Contains(got,
			`the key "v" of namespace "sms" with prefix "it" is not in Redis`) {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// TestStoredForeign shows a Hash with fields of somebody else and without a time to live, and has
// neither a wrong type nor a Redis that is gone for a key that does not exist.
func TestStoredForeign(t *testing.T) {
	server := redistest.Start(t)
	must.Succeed(t, server.Do("HSET", "tt:meta", "layout", "6", "partitions", "1",
		"hash-seed", "1").Err())
	must.Succeed(t, server.Do("HSET", "tt:{p0}:default:k", "c\x01\x00\x00", "\xe8\x07\x04",
		"d", "\x1b", "mine", "1", "c\x02", "x").Err())
	must.Succeed(t, server.Do("SET", "tt:{p0}:default:s", "text").Err())
	for _, test := range []struct {
		key, url string
		status   int
		want     string
	}{
		{"k", server.URL(), exitOK, "\"tt:{p0}:default:k\" never expires, unknown field \"c\\x02\", " +
			"unknown field \"d\", unknown field \"mine\"\n" +
			"TIME                      WIDTH  EVENTS\n" +
			"1970-01-01T00:00:01.000Z  1ms    2\ntotal                            2\n"},
		{"s", server.URL(), exitFailed, "read tt:{p0}:default:s: WRONGTYPE"},
		{"s", "redis://127.0.0.1:1", exitFailed, "connection refused"},
		{"", server.URL(), exitUsage, "the KEY is empty"},
	} {
		status, out, errs := exec(t, nil, "stored", test.key, "--redis", test.url)
		if status != test.status || !strings.Contains(out+errs, test.want) {
			t.Errorf("%q: status %d, printed\n%s%swant\n%s", test.key, status, out, errs, test.want)
		}
	}
}
