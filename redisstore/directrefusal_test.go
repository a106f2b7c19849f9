package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
)

// elsewhere returns a key of another partition.
func elsewhere(s *redisstore.Store, from, name string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint(name, i); s.Partition(key) != s.Partition(from) {
			return key
		}
	}
}

// TestDirectForeignStateFailsItsPartitionAlone: the key of a partition's state has a value of
// another type. Operations refused because of it count nothing at all, and operations next to them
// are not reported as refused.
func TestDirectForeignStateFailsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	good := "good"
	bad := elsewhere(s, good, "bad")
	if err := srv.Do("SET", prefix.StateKey(s.Partition(bad)), "foreign").Err(); err != nil {
		t.Fatal(err)
	}
	ops := []twotier.Op{
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(good, 1, 60_000, 10)}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(bad, 1, 60_000, 10)}},
		{Kind: twotier.Acquire, Checks: []twotier.Check{check(good, 1, 60_000, 10),
			check(bad, 1, 60_000, 10)}},
		{Kind: twotier.Add, Checks: []twotier.Check{check(good, 1)}},
	}
	res := make([]twotier.Result, len(ops))
	d.DoAll(t.Context(), ops, res)
	for i, refused := range []bool{false, true, true, false} {
		if errors.Is(res[i].Err, twotier.ErrUnavailable) != refused ||
			!refused && res[i].Err != nil {
			t.Errorf("operation %d: %v, want it refused: %v", i, res[i].Err, refused)
		}
	}
	hi(t, d, good, 2)
	hi(t, d, bad, 0)
}

// TestDirectWithoutACommand revokes the permission for a command while operations run. Their
// answers must be true: refused operations are not counted, and all others are.
func TestDirectWithoutACommand(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	if err := probe(t, s); err != nil {
		t.Fatal(err)
	}
	for i, command := range redisstore.Commands(redisstore.ExpiryKey) {
		if command == "hgetall" { // the test reads the counts with this
			continue
		}
		d := openDirect(t, redisstore.DirectOptions{
			Store: s, Now: newClock(t0).now.Load, Writer: command, Timeout: time.Minute,
		})
		key, other := fmt.Sprint("k", i), fmt.Sprint("o", i)
		ops := []twotier.Op{
			{Kind: twotier.Acquire, Checks: []twotier.Check{check(key, 1, 60_000, 10)}},
			{Kind: twotier.Acquire, Checks: []twotier.Check{check(key, 1, 60_000, 10),
				check(other, 1, 60_000, 10)}},
			{Kind: twotier.Add, Checks: []twotier.Check{check(key, 3)}},
			{Kind: twotier.Add, Checks: []twotier.Check{check(key, -1)}},
			{Kind: twotier.Add, TS: t0 - 20_000,
				Checks: []twotier.Check{check(other, 5, 60_000, 100)}},
		}
		wants := []map[string]int64{{key: 1}, {key: 1, other: 1}, {key: 3}, {key: -1}, {other: 5}}
		allow(t, srv, "-"+command)
		counted := map[string]int64{}
		res := make([]twotier.Result, len(ops))
		d.DoAll(t.Context(), ops, res)
		for j := range ops {
			if errors.Is(res[j].Err, twotier.ErrUnknownOutcome) {
				t.Errorf("without %s the outcome of operation %d is unknown: %v", command, j,
					res[j].Err)
			}
			for name, n := range wants[j] {
				if res[j].Err == nil {
					counted[name] += n
				}
			}
		}
		allow(t, srv, "+"+command)
		for _, name := range []string{key, other} {
			hi(t, d, name, max(0, counted[name]))
		}
	}
}

func allow(t *testing.T, srv *redistest.Server, rule string) {
	t.Helper()
	if err := srv.Do("ACL", "SETUSER", "default", rule).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestDirectBanThatRedisRefuses: the key of a ban has a value of another type. An acquire that
// counts although it is refused is reported as not carried out, so nothing stays counted.
func TestDirectBanThatRedisRefuses(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	key := check("k", 1, 60_000, 2)
	acquire(t, d, key)
	acquire(t, d, key)
	ban := twotier.Check{Kind: twotier.BanCheck, Ban: twotier.Ban{To: 1}, Limits: limits(2000, 0)}
	ban.NS, ban.Key = twotier.BanKey(nil, "rule", key.Key)
	place := twotier.Placement{Partitions: twotier.DefaultPartitions}
	name := redisstore.Key(place.Of(ban.NS, ban.Key), ban.NS, ban.Key)
	if err := srv.Do("SET", name, "foreign").Err(); err != nil {
		t.Fatal(err)
	}
	op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Checks: []twotier.Check{key, ban}}
	var res twotier.Result
	if err := d.Do(t.Context(), &op, &res); !errors.Is(err, twotier.ErrUnavailable) {
		t.Errorf("%+v, %v", res, err)
	}
	hi(t, d, "k", 2)
}
