package redistest

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
)

// SetMigrating begins the move of a slot. From now on the old primary answers ASK for keys that it
// doesn't have, and TRYAGAIN for several keys if it has only some of them.
func (c *Cluster) SetMigrating(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	// This order matters: the old primary must not redirect clients before the new one expects
	// them.
	must(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from])
	must(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to])
}

// MigrateKeys moves up to most keys of a slot, at most 1000, and returns how many it moved. With
// most 0 it moves up to 1000.
func (c *Cluster) MigrateKeys(t testing.TB, slot int, from, to *Server, most int) int {
	t.Helper()
	if most <= 0 || most > 1000 {
		most = 1000
	}
	keys, err := from.Do("CLUSTER", "GETKEYSINSLOT", slot, most).StringSlice()
	if err != nil {
		t.Fatalf("redistest: CLUSTER GETKEYSINSLOT: %v", err)
	}
	if len(keys) == 0 {
		return 0
	}
	host, port := to.hostPort()
	args := []any{"MIGRATE", host, port, "", 0, patience.Milliseconds()}
	if to.cfg.user != "" {
		args = append(args, "AUTH2", to.cfg.user, to.cfg.pass)
	}
	args = append(args, "KEYS")
	for _, key := range keys {
		args = append(args, key)
	}
	must(t, from, args...)
	return len(keys)
}

// FinishMigration assigns the slot to its new primary and waits until all running nodes know.
func (c *Cluster) FinishMigration(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	// The new primary first: if the old one gave the slot up before that, no node would own it.
	must(t, to, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
	must(t, from, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
	c.waitOwner(t, slot, to)
	c.WaitReady(t)
}

// waitOwner waits until all running nodes agree that want serves the slot.
func (c *Cluster) waitOwner(t testing.TB, slot int, want *Server) {
	t.Helper()
	waitFor(t, fmt.Sprintf("slot %d moves", slot), func() error {
		for _, s := range c.running() {
			if got, err := c.owner(s, slot); err != nil || got != want {
				return fmt.Errorf("at %s: not yet (%v)", s.Addr(), err)
			}
		}
		return nil
	})
}

// Failover promotes a replica without losing a write, and waits until all nodes know.
func (c *Cluster) Failover(t testing.TB, replica *Server) {
	t.Helper()
	must(t, replica, "CLUSTER", "FAILOVER")
	waitFor(t, "failover", func() error {
		return infoHas(replica, []any{"INFO", "replication"}, "role:master")
	})
	c.WaitReady(t)
}

// KillPrimary kills the primary that serves the slot and returns it. Writes that it had not sent to
// its replicas are lost. If it has no replica, the cluster is down.
func (c *Cluster) KillPrimary(t testing.TB, slot int) *Server {
	t.Helper()
	s := c.Owner(t, slot)
	s.Kill()
	return s
}

// WaitPromotion waits until all running nodes report that another node than the old primary serves
// the slot, and returns that node.
func (c *Cluster) WaitPromotion(t testing.TB, slot int, old *Server) *Server {
	t.Helper()
	var promoted *Server
	waitFor(t, "a replica is promoted", func() (err error) {
		for _, s := range c.running() {
			if promoted, err = c.owner(s, slot); err != nil {
				return err
			}
			if promoted == old {
				return fmt.Errorf("%s still believes in %s", s.Addr(), old.Addr())
			}
		}
		return nil
	})
	c.WaitReady(t)
	return promoted
}

// FeatureSet lists features that tests depend on and that some servers lack.
type FeatureSet struct {
	// HPExpire is set if fields of a hash can expire one by one (HPEXPIRE: Redis from 7.4, Valkey
	// from 9).
	HPExpire bool
	// TairHash is set if the TairHash module is loaded (EXHINCRBY and so on).
	TairHash bool
	// WaitAOF is set if a client can wait for the append-only file (WAITAOF: Redis from 7.2).
	WaitAOF bool
}

// Features detects the features of the server by trying them.
func Features(t testing.TB, s *Server) FeatureSet {
	t.Helper()
	const key = "redistest:probe"
	has := func(args ...any) bool {
		t.Helper()
		err := s.Do(args...).Err()
		if err != nil && !strings.Contains(err.Error(), "unknown command") {
			t.Fatalf("redistest: probe: %v", err)
		}
		return err == nil
	}
	must(t, s, "HSET", key, "f", 1)
	var f FeatureSet
	f.HPExpire = has("HPEXPIRE", key, 60000, "FIELDS", 1, "f")
	must(t, s, "DEL", key)
	f.TairHash = has("EXHINCRBY", key, "f", 1, "PX", 60000)
	must(t, s, "DEL", key)
	f.WaitAOF = has("WAITAOF", 0, 0, 1)
	return f
}

// Expiries returns the ways of expiring buckets, as --redis-expiry names them, that the server
// supports. "key" is always one.
func Expiries(t testing.TB, s *Server) []string {
	t.Helper()
	f, list := Features(t, s), []string{"key"}
	if f.HPExpire {
		list = append(list, "field")
	}
	if f.TairHash {
		list = append(list, "tairhash")
	}
	return list
}

// Expiry chooses one of the supported ways of expiring buckets by the name of the test, so that one
// run of a suite covers all of them. TWOTIER_TEST_EXPIRY in the environment chooses one for all
// tests, if the server supports it.
func Expiry(t testing.TB, s *Server) string {
	t.Helper()
	list := Expiries(t, s)
	if chosen := os.Getenv("TWOTIER_TEST_EXPIRY"); slices.Contains(list, chosen) {
		return chosen
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return list[h.Sum32()%uint32(len(list))]
}
