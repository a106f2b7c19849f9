package faulttest

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// mistake is a configuration with which a node can't work.
type mistake struct {
	args   []string
	status int
	reason string
}

// mistakes returns common mistakes of operators.
func mistakes(t *testing.T) map[string]mistake {
	locked := redistest.Start(t, redistest.ACL("alice", "s3cret-s3cret"))
	secure := redistest.Start(t, redistest.TLS())
	plain := redistest.Start(t, redistest.Config("rename-command HMGET \"\""))
	ca := must.File(t, "other.pem", must.Read(t, redistest.Start(t, redistest.TLS()).TLS().CA))
	at := func(s *redistest.Server) string { return s.Addr() }
	return map[string]mistake{
		"password": {args: []string{"--redis", "redis://alice:s3cret-wr0ng@" + at(locked)},
			status: 1, reason: "WRONGPASS"},
		"none": {args: []string{"--redis", "redis://" + at(locked)}, status: 1,
			reason: "NOAUTH"},
		"database": {args: []string{"--redis", "redis://" + at(plain) + "/99"}, status: 1,
			reason: "DB index"},
		"authority": {args: []string{"--redis", "rediss://" + at(secure), "--redis-tls-ca", ca},
			status: 1, reason: "certificate"},
		"command": {args: []string{"--redis", "redis://" + at(plain)}, status: 1, reason: "HMGET"},
		"no TLS": {args: []string{"--redis", "rediss://" + at(locked)}, status: 1,
			reason: "answers without TLS"},
		"TLS": {args: []string{"--redis", "redis://" + at(secure)}, status: 1,
			reason: "answers with TLS only"},
		"port": {args: []string{"--redis", "redis://127.0.0.1:port"}, status: 2,
			reason: "--redis: redis URL"},
		"scheme": {args: []string{"--redis", "http://127.0.0.1:1"}, status: 2,
			reason: "unknown scheme"},
	}
}

// TestWhatCannotWorkIsRefusedAtStart starts nodes with mistakes of an operator. They end at once
// and give the reason, without showing a password.
func TestWhatCannotWorkIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	for name, m := range mistakes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := program.TryServe(t, proctest.Options{}, m.args...)
			if err == nil {
				t.Fatalf("it started\n%s", n.Log.String())
			}
			proctest.Wait(t, "the end", n.Done())
			if log := n.Log.String(); n.ExitCode() != m.status ||
				!strings.Contains(log, m.reason) || strings.Contains(log, "wr0ng") {
				t.Errorf("exit status %d, want %d and %q:\n%s", n.ExitCode(), m.status,
					m.reason, log)
			}
		})
	}
}

// TestEvictionIsWarnedOfOnce changes the policy of a running Redis: each change is logged once.
func TestEvictionIsWarnedOfOnce(t *testing.T) {
	takesLong(t)
	t.Parallel()
	server := redistest.Start(t, redistest.Config("maxmemory-policy allkeys-lru"))
	n := program.Serve(t, proctest.Options{}, "--redis", server.URL())
	lines := func(part string) int { return strings.Count(n.Log.String(), part) }
	proctest.Until(t, "a warning at start", func() bool { return lines("allkeys-lru") > 0 })
	for _, policy := range []string{"noeviction", "volatile-ttl"} {
		must.Succeed(t, server.Do("CONFIG", "SET", "maxmemory-policy", policy).Err())
		proctest.Until(t, policy+" is noticed", func() bool { return lines("policy="+policy) == 1 })
	}
	if got := lines("allkeys-lru"); got != 1 {
		t.Errorf("%d warnings of one policy, want one", got)
	}
}
