package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

func otherPrimary(t testing.TB, c *redistest.Cluster, not *redistest.Server) *redistest.Server {
	t.Helper()
	for _, s := range c.Primaries(t) {
		if s != not {
			return s
		}
	}
	t.Fatal("there is no other primary")
	return nil
}

func inOnePartition(s *redisstore.Store, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Sprint("key-", i); s.Partition(k) == s.Partition("key-0") {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestSlotMigration moves a slot away and back while rounds and direct operations count in it. The
// stored counts equal the acknowledged ones, however many MOVED, ASK and TRYAGAIN there were.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	placement := twotier.Placement{Partitions: 3}
	s := open(t, redisstore.Options{URL: c.URL(), Placement: placement})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	keys := inOnePartition(s, 20)
	must.Succeed(t, probe(t, s))
	name := "direct-0" // in the same partition of its namespace
	for i := 0; placement.Of([]byte("direct"), []byte(name)) != s.Partition(keys[0]); i++ {
		name = fmt.Sprint("direct-", i)
	}
	stop := make(chan struct{})
	var rounds, direct, failures atomic.Int64
	var wg sync.WaitGroup
	loop := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	r := migrationRound(s, keys, 1)
	loop(func() {
		if send(t, s, r); r.Err != nil {
			failures.Add(1) // the same again
			return
		}
		if r.Lost {
			t.Error("lost")
		}
		rounds.Add(1)
		r = migrationRound(s, keys, r.Seq+1)
	})
	loop(func() {
		op := twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{check(name, 1, 60_000, 1_000_000)}}
		op.Checks[0].NS = []byte("direct")
		var res twotier.Result
		if err := d.Do(t.Context(), &op, &res); err != nil || !res.Allowed {
			t.Error(err, res)
			return
		}
		direct.Add(1)
	})
	slot := c.Slot(t, s.Address(keys[0]))
	from := c.Owner(t, slot)
	to := otherPrimary(t, c, from)
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		c.SetMigrating(t, slot, from, to)
		for c.MigrateKeys(t, slot, from, to, 5) > 0 {
			time.Sleep(10 * time.Millisecond) // traffic meets the slot half moved
		}
		c.FinishMigration(t, slot, from, to)
		from, to = to, from
	}
	time.Sleep(50 * time.Millisecond)
	close(stop)
	wg.Wait()
	for r.Err != nil {
		if send(t, s, r); r.Err == nil {
			rounds.Add(1)
		}
	}
	t.Logf("%d rounds, %d sent again, %d direct operations", rounds.Load(), failures.Load(),
		direct.Load())
	for _, k := range keys {
		if got := hget(t, c.Owner(t, slot), s, k); got != rounds.Load() {
			t.Errorf("%s: %d stored, %d acknowledged", k, got, rounds.Load())
		}
	}
	if got := directStored(t, c); got != direct.Load() {
		t.Errorf("direct: %d stored, %d acknowledged", got, direct.Load())
	}
}

func migrationRound(s *redisstore.Store, keys []string, seq uint64) *syncer.Round {
	r := oneRound(s, keys[0], seq)
	for _, k := range keys[1:] {
		r.Keys = append(r.Keys, oneRound(s, k, seq).Keys...)
	}
	return r
}

func directStored(t testing.TB, c *redistest.Cluster) (sum int64) {
	t.Helper()
	for _, srv := range c.Primaries(t) {
		names, err := srv.Do("KEYS", "*:direct:*").StringSlice()
		must.Succeed(t, err)
		for _, name := range names {
			sum += sumIn(t, srv, name)
		}
	}
	return sum
}

// TestDirectClusterTakesATagAtOnce acquires over keys with one tag. One script decides them, and
// counts nothing that would have to be taken back.
func TestDirectClusterTakesATagAtOnce(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{URL: c.URL(), Placement: twotier.Placement{
		Partitions: twotier.DefaultPartitions, HashTags: twotier.HashTags{"default": true}}})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	must.Succeed(t, probe(t, s))
	message := []twotier.Check{check("{188}", 1, 60_000, 15), check("{188}:hello", 1, 60_000, 2)}
	dry := twotier.Op{Kind: twotier.Acquire, Checks: message, DryRun: true}
	must.Succeed(t, d.Do(t.Context(), &dry, new(twotier.Result))) // it reads the keys
	before := s.Health().RoundTrips
	for i := range 4 {
		if res := acquire(t, d, message...); res.Allowed != (i < 2) || res.Checks[0].Refused ||
			res.Checks[1].Refused == res.Allowed {
			t.Errorf("message %d: %+v", i, res)
		}
	}
	if n := s.Health().RoundTrips - before; n != 4 {
		t.Errorf("%d round trips for 4 messages", n)
	}
	for _, key := range []string{"{188}", "{188}:hello"} {
		hi(t, d, key, 2)
	}
}

func TestDirectClusterSeveralChecks(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{URL: c.URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	checks := []twotier.Check{check("x", 1, 60_000, 3), check("y", 1, 60_000, 2),
		check("x", 1, 60_000, 3)}
	if res := acquire(t, d, checks...); !res.Allowed {
		t.Errorf("first: %+v", res)
	}
	if res := acquire(t, d, checks...); res.Allowed || !res.Checks[2].Refused ||
		res.RetryAfter < 1 {
		t.Errorf("second: %+v", res)
	}
	if x, y := count(t, d, "x", 60_000), count(t, d, "y", 60_000); x != 2 || y != 1 {
		t.Errorf("stored x=%d y=%d, want 2 and 1", x, y)
	}
	op := twotier.Op{Kind: twotier.Acquire, CountDenied: true, Checks: checks}
	if res := do(t, d, op); res.Allowed {
		t.Errorf("count denied: %+v", res)
	}
	if x, y := count(t, d, "x", 60_000), count(t, d, "y", 60_000); x != 4 || y != 2 {
		t.Errorf("stored x=%d y=%d, want 4 and 2", x, y)
	}
	// An acquire that fails leaves no counts of the other keys.
	must.Succeed(t, s.Client().Set(t.Context(), s.Address("foreign"), "mine", 0).Err())
	for _, op.CountDenied = range []bool{false, true} {
		op.Checks = []twotier.Check{check("z", 1, 60_000, 3), check("foreign", 1, 60_000, 3)}
		var res twotier.Result
		if err := d.Do(t.Context(), &op, &res); err == nil || errors.Is(err, twotier.ErrClosed) {
			t.Errorf("a key that can't be counted: %v", err)
		}
		hi(t, d, "z", 0)
	}
}

// TestSequencesThatExpiredAreNoLoss: a counter knows of a change, and reads more after the sequence
// of the change's writer has gone. That is a loss, unless the change is so old that the sequence
// has expired.
func TestSequencesThatExpiredAreNoLoss(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	exchange := func(r *syncer.Round) *syncer.Round {
		s.Exchange(t.Context(), []*syncer.Round{r})
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	key := syncer.KeyRound{Key: []byte("a"), Adds: []syncer.Bucket{counts(second, 1)}}
	gone := exchange(&syncer.Round{Writer: "gone", Seq: 1, Keys: []syncer.KeyRound{key}})
	exchange(&syncer.Round{Writer: "other", Seq: 1, Keys: []syncer.KeyRound{key}})
	srv.Do("DEL", "tt:{p0}!w:gone")
	for age, lost := range map[time.Duration]bool{time.Minute: true, 30 * time.Hour: false} {
		change := fmt.Sprintf("1 %d tt:{p0}!w:gone", time.Now().Add(-age).Unix())
		for _, readOnly := range []bool{false, true} {
			r := exchange(&syncer.Round{Writer: "reader", Epoch: gone.Epoch, LastChange: change,
				ReadOnly: readOnly, Keys: []syncer.KeyRound{{Key: key.Key, Load: true}}})
			if r.Lost != lost {
				t.Errorf("after %v, read only %v: lost %v, want %v", age, readOnly, r.Lost, lost)
			}
		}
	}
	if r := exchange(&syncer.Round{Writer: "reader", Epoch: gone.Epoch, ReadOnly: true,
		Keys: []syncer.KeyRound{{Key: key.Key, Load: true}}}); r.Lost {
		t.Error("who knows of no change is told of a loss")
	}
}

// TestLoadOfAKeyThatMoves loads a key that is at the other node while its slot moves, and the move
// ends before the key is read there. The reported state of the partition includes the change made
// to the key meanwhile.
func TestLoadOfAKeyThatMoves(t *testing.T) {
	from, to := miniredis.RunT(t), miniredis.RunT(t)
	s := open(t, redisstore.Options{URL: "redis+cluster://" + from.Addr()})
	works(t, s)
	partition, key := s.Partition("k"), s.Address("k")
	state := prefix.StateKey(partition)
	set := func(n int64) {
		fields := redisstore.Fields(counts(second, n))
		to.HSet(key, fields[0].(string), fields[1].(string))
	}
	from.HSet(state, "e", "7", "v", "1", "q", "0")
	set(5)
	from.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		asked := cmd == "HGETALL" && args[0] == key
		if asked {
			c.WriteError(fmt.Sprintf("ASK 0 %s", to.Addr()))
		}
		return asked
	})
	to.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "HGETALL" {
			set(6)
			from.HSet(state, "v", "2")
		}
		if cmd == "ASKING" {
			c.WriteOK()
		}
		return cmd == "ASKING"
	})
	r := &syncer.Round{Partition: partition, Writer: "reader", Epoch: 7, Version: 1, ReadOnly: true,
		Keys: []syncer.KeyRound{{Key: []byte("k"), Load: true}}}
	if send(t, s, r); r.Err != nil || r.Keys[0].Err != nil || len(r.Keys[0].Loaded) != 1 {
		t.Fatalf("%v, %+v", r.Err, r.Keys[0])
	}
	if n := r.Keys[0].Loaded[0].N; n != 6 || r.Version != 2 {
		t.Errorf("it holds %d by version %d, want 6 by version 2", n, r.Version)
	}
}
