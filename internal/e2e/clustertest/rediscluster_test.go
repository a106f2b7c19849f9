package clustertest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestFault7RedisClusterBeneathThreeNodes moves a slot and kills a primary while three nodes count
// in a Redis Cluster. Writes that the primary had not sent to its replica are lost in Redis, but
// the owners have them in memory and restore them: L is 0.
func TestFault7RedisClusterBeneathThreeNodes(t *testing.T) {
	t.Parallel()
	rc := redistest.StartCluster(t, 3, 1)
	c := startOn(t, rc, 3, proctest.Loopback())
	tr := c.Traffic()
	tr.Accept(300)
	slot := rc.Slot(t, proctest.Hash(c.Partitions, proctest.HotKey))
	from := rc.Owner(t, slot)
	to := rc.Primaries(t)[0]
	if to == from {
		to = rc.Primaries(t)[1]
	}
	// The slot stays half moved for a while: ASK for keys that have moved, TRYAGAIN for a script
	// that needs keys of both kinds.
	rc.SetMigrating(t, slot, from, to)
	tr.Accept(100)
	rc.MigrateKeys(t, slot, from, to, 1)
	tr.Accept(200)
	for rc.MigrateKeys(t, slot, from, to, 0) > 0 {
	}
	tr.Accept(100)
	rc.FinishMigration(t, slot, from, to)
	tr.Accept(200)
	c.Serve(3) // partitions change owners meanwhile
	tr.To(c.Bases()...)
	old := rc.KillPrimary(t, slot)
	tr.Accept(200)
	rc.WaitPromotion(t, slot, old)
	tr.Accept(300)
	c.Stop(0)
	tr.To(c.Bases()...)
	tr.Accept(200)
	tr.Stop()
	c.Settle("7 Redis Cluster, migration and failover beneath nodes that come and go", 0)
}
