package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// restricted makes a user with only the given commands, on keys that begin with tt:, and returns
// the user's URL.
func restricted(t testing.TB, srv *redistest.Server, commands []string) string {
	t.Helper()
	args := []any{"ACL", "SETUSER", "alice", "reset", "on", ">s3cret", "~tt:*"}
	for _, c := range commands {
		args = append(args, "+"+c)
	}
	must.Succeed(t, srv.Do(args...).Err())
	return "redis://alice:s3cret@" + srv.Addr()
}

// commandsOf returns the commands that a store uses, in the form that ACL rules take: those that
// the probe of a user without any names, and one that everything works without.
func commandsOf(t testing.TB, srv *redistest.Server, e redisstore.Expiry) []string {
	t.Helper()
	err := probe(t, open(t, redisstore.Options{URL: restricted(t, srv, nil), Expiry: e}))
	if err == nil {
		t.Fatal("a user without any command may use it")
	}
	_, rules, _ := strings.Cut(err.Error(), "ACL SETUSER alice +")
	commands := append(strings.Split(rules, " +"), "restore")
	slices.Sort(commands)
	return commands
}

// TestProbeSaysWhatAUserLacks takes each required command away from a user in turn. Following the
// refusal's advice is enough.
func TestProbeSaysWhatAUserLacks(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		all := commandsOf(t, srv, redisstore.Expiry(expiry))
		for i, command := range all {
			if command == "restore" {
				continue // see TestPayloadsOfKeysThatExist
			}
			url := restricted(t, srv, slices.Delete(slices.Clone(all), i, i+1))
			flushAll(t, srv)
			repaired(t, srv, redisstore.Options{URL: url, Expiry: redisstore.Expiry(expiry)},
				command)
		}
	}
}

// repaired probes, follows the refusal's advice, and probes again.
func repaired(t *testing.T, srv *redistest.Server, opt redisstore.Options, lacks string) {
	t.Helper()
	err := probe(t, open(t, opt))
	if !errors.Is(err, redisstore.ErrMismatch) ||
		!strings.Contains(strings.ToLower(err.Error()), lacks) {
		t.Errorf("without %s: %v", lacks, err)
		return
	}
	_, line, _ := strings.Cut(err.Error(), "let an administrator run ")
	var args []any
	for _, word := range strings.Fields(line) {
		args = append(args, word)
	}
	if err := srv.Do(args...).Err(); err != nil {
		t.Fatalf("without %s: %s: %v", lacks, line, err)
	}
	if err := probe(t, open(t, opt)); err != nil {
		t.Errorf("after %s: %v", line, err)
	}
}

func TestProbeSaysThatAUserLacksTheKeys(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	url := restricted(t, srv, commandsOf(t, srv, redisstore.ExpiryKey))
	must.Succeed(t, srv.Do("ACL", "SETUSER", "alice", "resetkeys", "~other:*").Err())
	repaired(t, srv, redisstore.Options{URL: url}, "keys that begin with tt:")
	other := redisstore.Options{URL: url, Prefix: "staging"}
	repaired(t, srv, other, "keys that begin with staging:")
	if err := probe(t, open(t, redisstore.Options{URL: url, Prefix: "stag"})); err == nil {
		t.Error("the user may use the keys of a shorter prefix")
	}
}

func TestProbeSaysThatACommandIsGone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.Config(`rename-command PEXPIRE ""`))
	err := probe(t, open(t, redisstore.Options{URL: srv.URL()}))
	if !errors.Is(err, redisstore.ErrMismatch) ||
		!strings.Contains(err.Error(), "it does not have the command PEXPIRE") {
		t.Error(err)
	}
}

// restrictedStore gives the conformance suite access to Redis as another user.
type restrictedStore struct {
	syncer.Store
	tellingStore
}

func (s restrictedStore) Exchange(ctx context.Context, rounds []*syncer.Round) {
	s.Store.Exchange(ctx, rounds)
}

// TestCommandsAreAllThatIsUsed runs rounds and operations of all kinds as a user with no other
// permissions.
func TestCommandsAreAllThatIsUsed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, expiry := range redistest.Expiries(t, srv) {
		e := redisstore.Expiry(expiry)
		url := restricted(t, srv, commandsOf(t, srv, e))
		t.Run(expiry, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) syncer.Store {
				flushAll(t, srv)
				return restrictedStore{
					open(t, redisstore.Options{URL: url, Expiry: e}),
					tellingStore{open(t, redisstore.Options{URL: srv.URL(), Expiry: e})},
				}
			})
			flushAll(t, srv)
			d := openDirect(t,
				redisstore.DirectOptions{Store: open(t, redisstore.Options{URL: url, Expiry: e}),
					Now: newClock(t0).now.Load})
			for _, op := range []twotier.Op{
				{Kind: twotier.Acquire,
					Checks: []twotier.Check{check("a", 1, 60_000, 10), check("b", 1, 60_000, 10)}},
				{Kind: twotier.Add, Checks: []twotier.Check{check("a", 3)}},
				{Kind: twotier.Add, Checks: []twotier.Check{check("a", -1, 60_000, 10)}},
				{Kind: twotier.Add, TS: t0 - 7_200_000, Checks: []twotier.Check{check("b", 1)}},
			} {
				do(t, d, op)
			}
			hi(t, d, "a", 3)
			if err := d.Forget(t.Context(), nil, []byte("a")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProbeWarnsOfEviction checks the policy, whether or not a limit is set.
func TestProbeWarnsOfEviction(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{"noeviction": false, "allkeys-lru": true,
		"volatile-ttl": true} {
		srv := redistest.Start(t, redistest.Config("maxmemory-policy "+policy))
		var log strings.Builder
		s := open(t, redisstore.Options{URL: srv.URL(),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must.Succeed(t, probe(t, s))
		if warned := strings.Contains(log.String(), "policy="+policy); warned != want {
			t.Errorf("%s: %q", policy, log.String())
		}
	}
}

// TestProbeOfAServerThatTakesNoWrites probes a read-only server that already has everything.
func TestProbeOfAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	for _, refuse := range []string{"CONFIG SET maxmemory 1", "REPLICAOF 127.0.0.1 1"} {
		srv := redistest.Start(t, redistest.Config("maxmemory-policy noeviction"))
		works(t, open(t, redisstore.Options{URL: srv.URL()}))
		var args []any
		for _, word := range strings.Fields(refuse) {
			args = append(args, word)
		}
		must.Succeed(t, srv.Do(args...).Err())
		if err := probe(t,
			open(t, redisstore.Options{URL: srv.URL(), Timeout: 2 * time.Second})); err != nil {
			t.Errorf("%s: %v", refuse, err)
		}
	}
}

// TestProbeComparesTheWayOfExpiring: a store that expires buckets in one way refuses data that
// others have written in another way.
func TestProbeComparesTheWayOfExpiring(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for field, mine := range map[string]string{"redis-expiry": "key", "hash-type": "hash"} {
		flushAll(t, srv)
		must.Succeed(t, srv.Do("HSET", prefix.MetaKey(), field, "theirs").Err())
		err := probe(t, open(t, redisstore.Options{URL: srv.URL()}))
		want := field + " = theirs, this node has " + mine
		if !errors.Is(err, redisstore.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func hi(t *testing.T, d doer, key string, want int64) {
	t.Helper()
	res := do(t, d, twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check(key, 0, 60_000,
		0)}})
	if got := res.Checks[0].Limits[0].Hi; got != want {
		t.Errorf("%s counts %d, want %d", key, got, want)
	}
}

// TestDocumentedACL: the commands in SECURITY.md grant exactly the permissions that are needed. The
// tests of internal/e2e/acceptance run as such a user.
func TestDocumentedACL(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	must.Succeed(t, err)
	flat := strings.Join(strings.Fields(strings.NewReplacer("\\\n", " ", "'",
		"").Replace(string(text))), " ")
	common := commandsOf(t, redistest.Start(t), redisstore.ExpiryKey)
	line := "~" + prefix.Start() + "* +" + strings.Join(common, " +") + " "
	if !strings.Contains(flat, line) {
		t.Errorf("SECURITY.md does not have %q", line)
	}
	for _, command := range []string{"hpexpire", "exhset", "exhpexpire", "exhget", "exhmget",
		"exhgetall", "exhlen", "exhdel"} {
		if !strings.Contains(flat, "`+"+command+"`") {
			t.Errorf("SECURITY.md does not name +%s, which another --redis-expiry needs", command)
		}
	}
}
