package faulttest

import (
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// Writes that the primary had not sent to its replica when it was killed are lost in Redis, but a
// live node still has them in memory: it notices the loss and restores them, so L is 0 here too.
func TestFault7SentinelFailover(t *testing.T) {
	takesLong(t)
	t.Parallel()
	s := redistest.StartSentinel(t)
	b := newSingle(t, s)
	b.restart()
	tr := b.Traffic()
	tr.Accept(400)
	old := s.KillPrimary(t)
	tr.Accept(200)
	s.WaitPromotion(t, old)
	tr.Accept(300)
	proctest.Until(t, "the node has found the new primary",
		func() bool { return b.node.Metric("twotier_redis_up", "") == 1 })
	tr.Accept(100)
	tr.Stop()
	b.settle("7 Sentinel failover", 0)
}

func TestFault7ClusterMigrationAndFailover(t *testing.T) {
	takesLong(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	b := newSingle(t, c, "--partitions", "97")
	b.restart()
	tr := b.Traffic()
	tr.Accept(300)
	slot := c.Slot(t, b.Hash(proctest.HotKey))
	from := c.Owner(t, slot)
	to := c.Primaries(t)[0]
	if to == from {
		to = c.Primaries(t)[1]
	}
	// The slot stays half moved for a while: ASK for keys that have moved, TRYAGAIN for a script
	// that needs keys of both kinds.
	c.SetMigrating(t, slot, from, to)
	tr.Accept(100)
	c.MigrateKeys(t, slot, from, to, 2)
	tr.Accept(200)
	for c.MigrateKeys(t, slot, from, to, 0) > 0 {
	}
	tr.Accept(100)
	c.FinishMigration(t, slot, from, to)
	tr.Accept(200)
	old := c.KillPrimary(t, slot)
	tr.Accept(200)
	c.WaitPromotion(t, slot, old)
	tr.Accept(300)
	tr.Stop()
	b.settle("7 Cluster migration and failover", 0)
}

// TestFault7ReplicaThatLagged takes Redis back to the older data of a replica. Only the node still
// has the counts made since.
func TestFault7ReplicaThatLagged(t *testing.T) {
	b := newBed(t, nil)
	replica := redistest.Start(t)
	tr := b.Traffic()
	tr.Accept(300)
	follow(t, replica, b.redis)
	alone(t, replica)
	tr.Accept(400)
	follow(t, b.redis, replica) // drops its data; refuses writes while it is a replica
	alone(t, b.redis)
	tr.Accept(300)
	tr.Stop()
	b.settle("7 a replica that lagged", 0)
	if b.node.Metric("twotier_losses_total", "") == 0 {
		t.Error("no loss was noticed")
	}
}

// follow makes a server a replica and waits until it has all data of its primary.
func follow(t *testing.T, replica, primary *redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr(), ":")
	must.Succeed(t, replica.Do("REPLICAOF", host, port).Err())
	proctest.Until(t, "the replica is in sync", func() bool {
		info, err := replica.Do("INFO", "replication").Text()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

func alone(t *testing.T, s *redistest.Server) {
	t.Helper()
	must.Succeed(t, s.Do("REPLICAOF", "NO", "ONE").Err())
}
