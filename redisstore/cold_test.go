package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// fullKey counts "a" to a limit of 3, and returns a function that acquires it once more in a
// counter that has nothing in memory and decides about cold keys while the store is down.
func fullKey(t testing.TB, s *redisstore.Store) (ask func() (*twotier.Result, error)) {
	t.Helper()
	works(t, s)
	op := func(kind twotier.Kind, n int64) *twotier.Op {
		return &twotier.Op{Kind: kind, Ack: twotier.AckStore, Checks: []twotier.Check{{
			Key: []byte("full"), N: n, Limits: []twotier.Limit{{Window: 3_600_000, Max: 3}}}}}
	}
	counter := func() *syncer.Counter {
		// Without its list of keys, every key is loaded.
		c, err := syncer.New(syncer.Options{Store: struct{ syncer.Store }{s},
			Placement: s.Placement(), LoadTimeout: 200 * time.Millisecond})
		if err == nil {
			err = c.Open(t.Context())
		}
		must.Succeed(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	must.Succeed(t, counter().Do(t.Context(), op(twotier.Add, 3), new(twotier.Result)))
	c := counter()
	return func() (*twotier.Result, error) {
		res, asked := new(twotier.Result), op(twotier.Acquire, 1)
		asked.Ack = twotier.AckMemory
		return res, c.Do(t.Context(), asked, res)
	}
}

// undecided asks some times, and then again until the key is decided once Redis serves it again.
func undecided(t testing.TB, ask func() (*twotier.Result, error), heal func()) {
	t.Helper()
	for range 5 {
		if res, err := ask(); !errors.Is(err, twotier.ErrUnavailable) {
			t.Errorf("it is decided: %+v, %v", res, err)
		}
	}
	heal()
	for by := time.Now().Add(time.Minute); ; {
		res, err := ask()
		switch {
		case err == nil && !res.Allowed && !res.Degraded:
			return
		case err == nil && res.Allowed, time.Now().After(by):
			t.Fatalf("afterwards: %+v, %v", res, err)
		}
	}
}

// TestOnColdIsNotForMasterDown asks a replica that serves nothing because it has no primary.
func TestOnColdIsNotForMasterDown(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ask := fullKey(t, open(t, redisstore.Options{URL: srv.URL()}))
	order(t, srv, "CONFIG", "SET", "replica-serve-stale-data", "no")
	order(t, srv, "REPLICAOF", "127.0.0.1", "1")
	fresh := open(t, redisstore.Options{URL: srv.URL()})
	r := oneRound(fresh, "a", 2)
	if send(t, fresh, r); !errors.Is(r.Err, syncer.ErrRefused) { // it begins with a probe
		t.Errorf("before the first probe: %v, want it to be refused", r.Err)
	}
	undecided(t, ask, func() { order(t, srv, "REPLICAOF", "NO", "ONE") })
}

// TestOnColdIsNotForClusterDown asks a cluster in which no node serves the key's slot. Pure-Redis
// mode waits until one does.
func TestOnColdIsNotForClusterDown(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0, redistest.Config("cluster-require-full-coverage no"))
	s := open(t, redisstore.Options{URL: c.URL()})
	ask := fullKey(t, s)
	slot := c.Slot(t, s.Address("full"))
	owner := c.Owner(t, slot)
	each := func(args ...any) {
		for _, node := range c.Nodes {
			order(t, node, args...)
		}
	}
	each("CLUSTER", "DELSLOTS", fmt.Sprint(slot))
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	waits := make(chan error, 1)
	go func() {
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{check("full", 1)}}
		waits <- d.Do(t.Context(), &op, new(twotier.Result))
	}()
	undecided(t, ask, func() { order(t, owner, "CLUSTER", "ADDSLOTS", fmt.Sprint(slot)) })
	must.Succeed(t, <-waits)
}

// TestOnColdIsNotForAPasswordThatChanged asks a server that no longer takes the password.
func TestOnColdIsNotForAPasswordThatChanged(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	order(t, srv, "ACL", "SETUSER", "node", "on", ">before", "~*", "&*", "+@all")
	ask := fullKey(t, open(t, redisstore.Options{URL: "redis://node:before@" + srv.Addr()}))
	order(t, srv, "ACL", "SETUSER", "node", "resetpass", ">after")
	order(t, srv, "CLIENT", "KILL", "USER", "node")
	undecided(t, ask, func() { order(t, srv, "ACL", "SETUSER", "node", ">before") })
}

// TestOnColdIsNotForAForeignValue asks for a key whose name holds a value of another type.
func TestOnColdIsNotForAForeignValue(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	ask := fullKey(t, s)
	order(t, srv, "RENAME", s.Address("full"), "elsewhere")
	order(t, srv, "SET", s.Address("full"), "foreign")
	undecided(t, ask, func() { order(t, srv, "RENAME", "elsewhere", s.Address("full")) })
}

func order(t testing.TB, srv *redistest.Server, args ...any) {
	t.Helper()
	if err := srv.Do(args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// TestDirectReadsNothingOfARefusedConnection counts without a two-tier counter, and reads when the
// server no longer takes the password.
func TestDirectReadsNothingOfARefusedConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	order(t, srv, "ACL", "SETUSER", "node", "on", ">before", "~*", "&*", "+@all")
	s := open(t, redisstore.Options{URL: "redis://node:before@" + srv.Addr()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
	op := func(kind twotier.Kind) *twotier.Op {
		return &twotier.Op{Kind: kind, Checks: []twotier.Check{{Key: []byte("k"), N: 1,
			Limits: []twotier.Limit{{Window: 60_000, Max: 9}}}}}
	}
	must.Succeed(t, d.Do(t.Context(), op(twotier.Add), new(twotier.Result)))
	order(t, srv, "ACL", "SETUSER", "node", "resetpass", ">after")
	order(t, srv, "CLIENT", "KILL", "USER", "node")
	for range 5 {
		var res twotier.Result
		if err := d.Do(t.Context(), op(twotier.Count), &res); !errors.Is(err,
			twotier.ErrUnavailable) {
			t.Errorf("it is read: %+v, %v", res, err)
		}
		if err := d.Do(t.Context(), op(twotier.Acquire), &res); !errors.Is(err,
			twotier.ErrUnavailable) || errors.Is(err, twotier.ErrUnknownOutcome) {
			t.Errorf("it is counted: %+v, %v", res, err)
		}
	}
}

func loadOf(s *redisstore.Store, key string) *syncer.Round {
	return &syncer.Round{Partition: s.Partition(key), Writer: "w", Aside: true, ReadOnly: true,
		Keys: []syncer.KeyRound{{Key: []byte(key), Load: true}}}
}

// TestLateIsNotSilent loads keys whose answers do not come in time. The load is late if Redis
// answers other callers meanwhile.
func TestLateIsNotSilent(t *testing.T) {
	t.Parallel()
	_, p, s := startProxied(t, 500*time.Millisecond)
	works(t, s)
	other, r := loadOf(s, "a"), loadOf(s, "b")
	lost, answered := p.SwallowMatching(s.Address("b"), 1, false), make(chan struct{})
	go func() {
		defer close(answered)
		send(t, s, r)
	}()
	<-lost
	for waiting := true; waiting; {
		send(t, s, other)
		select {
		case <-answered:
			waiting = false
		default:
		}
	}
	if !errors.Is(r.Err, syncer.ErrLate) {
		t.Errorf("others were answered: %v", r.Err)
	}
	p.Hang()
	if send(t, s, r); r.Err == nil || errors.Is(r.Err, syncer.ErrLate) {
		t.Errorf("in silence: %v", r.Err)
	}
	p.Refuse()
	p.CloseAll()
	for range 2 { // the first one finds the connection broken
		if send(t, s, r); r.Err == nil || errors.Is(r.Err, syncer.ErrLate) {
			t.Errorf("refused: %v", r.Err)
		}
	}
}

// TestBusyIsLate loads a key while Redis runs a script for too long.
func TestBusyIsLate(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
	works(t, s)
	if err := srv.Do("CONFIG", "SET", "busy-reply-threshold", "1").Err(); err != nil {
		t.Skip(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Do("EVAL", "while true do end", "0")
	}()
	r := loadOf(s, "a")
	for send(t, s, r); r.Err == nil || errors.Is(r.Err, twotier.ErrUnknownOutcome); {
		send(t, s, r) // the script has not begun, or not run for long
	}
	if !errors.Is(r.Err, syncer.ErrLate) {
		t.Error(r.Err)
	}
	srv.Kill()
	<-done
}

// TestADeadNodeOfAClusterIsNotLate loads keys from two nodes, one of which hangs.
func TestADeadNodeOfAClusterIsNotLate(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 0)
	s := open(t, redisstore.Options{URL: c.URL(), Placement: twotier.Placement{Partitions: 64},
		Timeout: 500 * time.Millisecond})
	must.Succeed(t, probe(t, s))
	hung := c.Owner(t, c.Slot(t, s.Address("a")))
	dead, living := loadOf(s, "a"), loadOf(s, "a")
	for i := 0; c.Owner(t, c.Slot(t, s.Address(string(living.Keys[0].Key)))) == hung; i++ {
		living = loadOf(s, fmt.Sprint("b", i))
	}
	if send(t, s, dead, living); dead.Err != nil || living.Err != nil {
		t.Fatal(dead.Err, living.Err)
	}
	hung.Pause()
	defer hung.Resume()
	if send(t, s, dead, living); living.Err != nil || dead.Err == nil ||
		errors.Is(dead.Err, syncer.ErrLate) {
		t.Errorf("%v, %v", dead.Err, living.Err)
	}
}

// calls returns how many scripts the server has received.
func calls(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	stats, err := srv.Do("INFO", "commandstats").Text()
	must.Succeed(t, err)
	for line := range strings.Lines(stats) {
		var c int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &c); err == nil {
			n += c
		}
	}
	return n
}

// TestRoundsGoTogether: one script applies the rounds of many partitions, up to a bound. A refused
// round doesn't affect the rounds before or after it.
func TestRoundsGoTogether(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL(), Placement: twotier.Placement{Partitions: 1021}})
	works(t, s)
	taken := map[int]bool{s.Partition("a"): true} // works has counted there
	var rounds []*syncer.Round
	var keys []string
	for i := 0; len(rounds) < 200; i++ {
		key := fmt.Sprint("k", i)
		if p := s.Partition(key); !taken[p] {
			taken[p] = true
			rounds, keys = append(rounds, oneRound(s, key, 1)), append(keys, key)
		}
	}
	bad := s.Partition(keys[11])
	must.Succeed(t, srv.Do("SET", prefix.StateKey(bad), "not ours").Err())
	before := calls(t, srv)
	s.Exchange(t.Context(), rounds)
	if n := calls(t, srv) - before; n != 4 {
		t.Errorf("%d scripts for %d rounds, want 4 of 64 at most", n, len(rounds))
	}
	for i, r := range rounds {
		want := int64(1)
		if i == 11 {
			want = 0
			if !errors.Is(r.Err, syncer.ErrNotApplied) ||
				!strings.Contains(r.Err.Error(), "WRONGTYPE") {
				t.Errorf("the partition with a foreign value: %v", r.Err)
			}
		} else if r.Err != nil {
			t.Errorf("round %d: %v", i, r.Err)
		}
		if got := hget(t, srv, s, keys[i]); got != want {
			t.Errorf("%s: %d in Redis, want %d", keys[i], got, want)
		}
	}
	must.Succeed(t, srv.Do("DEL", prefix.StateKey(bad)).Err())
	s.Exchange(t.Context(), rounds) // again, unchanged
	for i, r := range rounds {
		if got := hget(t, srv, s, keys[i]); r.Err != nil || got != 1 {
			t.Errorf("%s: %d in Redis, %v", keys[i], got, r.Err)
		}
	}
}
