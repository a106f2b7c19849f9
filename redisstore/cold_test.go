package redisstore_test

import (
	"context"
	"errors"
	"fmt"
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

// TestOnColdIsNotForClusterDown asks a cluster in which no node serves the key's slot.
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
	undecided(t, ask, func() { order(t, owner, "CLUSTER", "ADDSLOTS", fmt.Sprint(slot)) })
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
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
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
