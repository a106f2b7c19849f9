package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

func probe(t testing.TB, s *redisstore.Store) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Probe(ctx)
}

// oneRound counts 1 under a key.
func oneRound(s *redisstore.Store, key string, seq uint64) *syncer.Round {
	return &syncer.Round{Partition: s.Partition(key), Writer: "w", Seq: seq, Acked: seq - 1,
		Keys: []syncer.KeyRound{
			{Key: []byte(key), TTL: 3_600_000,
				Adds: []syncer.Bucket{counts(second, 1)}}}}
}

func send(t testing.TB, s *redisstore.Store, rounds ...*syncer.Round) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.Exchange(ctx, rounds)
}

// works checks that the store can be used.
func works(t testing.TB, s *redisstore.Store) {
	t.Helper()
	must.Succeed(t, probe(t, s))
	r := oneRound(s, "a", 1)
	if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil {
		t.Errorf("round: %v, %+v", r.Err, r.Keys[0])
	}
	if h := s.Health(); h.Err != nil || h.RoundTrips == 0 {
		t.Errorf("health: %+v", h)
	}
}

// TestProbeRefusesWhatIsMissing uses a server without the commands, whatever the real one can do,
// except for a module's commands.
func TestProbeRefusesWhatIsMissing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	has := redistest.Features(t, srv)
	if has.HPExpire {
		srv = redistest.Start(t, redistest.Config(`rename-command HPEXPIRE ""`))
	}
	for expiry, command := range map[redisstore.Expiry]string{redisstore.ExpiryField: "HPEXPIRE",
		redisstore.ExpiryTairhash: "EXHSET"} {
		if expiry == redisstore.ExpiryTairhash && has.TairHash {
			continue // whether modules load before commands are renamed is up to the server
		}
		s := open(t, redisstore.Options{URL: srv.URL(), Expiry: expiry})
		want := "this Redis is not compatible: --redis-expiry=" + string(expiry) +
			" needs the command " + command +
			", which it does not have; use --redis-expiry=key"
		if err := probe(t, s); !errors.Is(err, redisstore.ErrMismatch) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		r := oneRound(s, "a", 1)
		if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) ||
			!errors.Is(r.Err, redisstore.ErrMismatch) {
			t.Errorf("round: %v", r.Err)
		}
		if h := s.Health(); !errors.Is(h.Err, redisstore.ErrMismatch) {
			t.Errorf("health: %+v", h)
		}
	}
}

// TestStoreWorksOnceRedisIsThere checks that a store needs no explicit probe.
func TestStoreWorksOnceRedisIsThere(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	addr := m.Addr()
	m.Close()
	s := open(t, redisstore.Options{URL: "redis://" + addr})
	r := oneRound(s, "a", 1)
	if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) || s.Health().Err == nil {
		t.Errorf("nobody is there: %v, health %+v", r.Err, s.Health())
	}
	must.Succeed(t, m.StartAddr(addr))
	if send(t, s, r); r.Err != nil || s.Health().Err != nil {
		t.Errorf("somebody is there: %v, health %+v", r.Err, s.Health())
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	slow := func() time.Time { return time.Now().Add(-time.Hour) }
	ahead, err := s.ClockAhead(t.Context(), slow)
	if err != nil || (ahead-time.Hour).Abs() > time.Second {
		t.Errorf("%v ahead, want an hour; %v", ahead, err)
	}
	if h := s.Health(); h.RTT <= 0 || h.RoundTrips != redisstore.ClockSamples {
		t.Errorf("%+v", h)
	}
}

// TestSilentRedisIsDown checks that a store with nothing to exchange learns from the clock that
// Redis is gone, and that it is back, but not that Redis accepts the rounds that it has refused.
func TestSilentRedisIsDown(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	must.Succeed(t, probe(t, s))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ask := func(ctx context.Context) error { _, err := s.ClockAhead(ctx, time.Now); return err }
	if err := ask(canceled); err == nil || s.Health().Err != nil {
		t.Errorf("given up by the caller: %v, health %v", err, s.Health().Err)
	}
	srv.Kill()
	if err := ask(t.Context()); err == nil || s.Health().Err == nil {
		t.Errorf("gone: %v, health %v", err, s.Health().Err)
	}
	srv.Restart(t)
	if err := ask(t.Context()); err != nil || s.Health().Err != nil {
		t.Errorf("back: %v, health %v", err, s.Health().Err)
	}
	refused := oneRound(s, "k", 1)
	srv.Kill()
	send(t, s, refused)
	srv.Restart(t)
	if err := ask(t.Context()); err != nil || s.Health().Err == nil {
		t.Errorf("a round has failed since: %v, health %v", err, s.Health().Err)
	}
	if send(t, s, refused); refused.Err != nil || s.Health().Err != nil {
		t.Errorf("the round got through: %v, health %v", refused.Err, s.Health().Err)
	}
}

func tlsConfig(t testing.TB, files redistest.TLSFiles) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(files.CA)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.TLS(), redistest.ACL("alice", "s3cret"))
	works(t, open(t, redisstore.Options{URL: srv.URL(), TLS: tlsConfig(t, srv.TLS())}))
	err := probe(t, open(t, redisstore.Options{URL: srv.URL()}))
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("an unknown CA: %v", err)
	}
	err = probe(t,
		open(t, redisstore.Options{URL: "redis://alice:s3cret@" + srv.Addr(),
			Timeout: time.Second}))
	if err == nil {
		t.Error("without TLS it works too")
	}
}

func TestTLSCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0, redistest.TLS(), redistest.ACL("alice", "s3cret"))
	works(t, open(t, redisstore.Options{URL: c.URL(), TLS: tlsConfig(t, c.TLS())}))
}

func TestACL(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.ACL("alice", "s3cret"))
	works(t, open(t, redisstore.Options{URL: srv.URL()}))
	for url, want := range map[string]string{
		"redis://alice:wr0ng@" + srv.Addr(): "WRONGPASS",
		"redis://bob:wr0ng@" + srv.Addr():   "WRONGPASS",
		"redis://" + srv.Addr():             "NOAUTH",
	} {
		s := open(t, redisstore.Options{URL: url})
		err := probe(t, s)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
		r := oneRound(s, "a", 1)
		if send(t, s, r); !errors.Is(r.Err, syncer.ErrNotApplied) {
			t.Errorf("%s: round: %v", url, r.Err)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.UnixSocket(), redistest.ACL("alice", "s3cret"))
	s := open(t, redisstore.Options{URL: srv.URL()})
	works(t, s)
	if h := s.Health(); h.Address != srv.Addr() || h.Kind != "redis" {
		t.Errorf("%+v", h)
	}
}

// TestSentinelFailover kills the primary. What its replica had received is there afterwards, and
// can be added to: counts, the nodes, the rules, and the lists of keys.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartSentinel(t)
	s := open(t, redisstore.Options{URL: cluster.URL(), Timeout: time.Second})
	works(t, s)
	ctx := t.Context()
	_, err := s.Nodes().Renew(ctx, "before", "text", time.Hour)
	must.Succeed(t, errors.Join(err, s.Rules().Append(ctx, version(1))))
	countNew(t, s, 1, time.Hour, "before")
	must.Succeed(t, cluster.Nodes[0].Do("SET", "last", "1").Err())
	must.Succeed(t, cluster.Nodes[0].Do("WAIT", 1, 0).Err())
	old := cluster.KillPrimary(t)
	r := oneRound(s, "a", 2)
	if send(t, s, r); r.Err == nil {
		t.Error("a round is carried out without a primary")
	}
	cluster.WaitPromotion(t, old)
	for deadline := time.Now().Add(time.Minute); r.Err != nil && time.Now().Before(deadline); {
		send(t, s, r)
	}
	if r.Err != nil || r.Lost || r.Keys[0].Err != nil || s.Health().Err != nil {
		t.Errorf("after the promotion: %v, lost %v, %+v; health: %v", r.Err, r.Lost,
			r.Keys[0].Adds, s.Health().Err)
	}
	all, err := s.Nodes().Renew(ctx, "after", "text", time.Hour)
	must.Succeed(t, errors.Join(err, s.Rules().Append(ctx, version(2))))
	n, _, err := s.Rules().Newest(ctx)
	if len(all) != 2 || n != 2 || err != nil {
		t.Errorf("nodes %+v, version %d of the rules, %v", all, n, err)
	}
	countNew(t, s, 2, time.Hour, "after")
	found := readKeys(t, s, &syncer.KeyList{Partition: 3})
	for _, key := range []string{"before", "after"} {
		if !found[syncer.KeyHash(nil, []byte(key))] {
			t.Errorf("%s is not listed", key)
		}
	}
}
