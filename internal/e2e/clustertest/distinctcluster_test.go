package clustertest

import (
	"fmt"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestFault7DistinctValuesOverARedisCluster adds distinct values to keys with hash tags while a
// slot of a Redis Cluster is moved, a primary is killed, a node is killed, and the cluster counts
// in Redis for a while. Every acknowledged value is there in the end, once, even after all nodes
// were started again: L is 0 as long as an owner has the values in memory that a replica had not
// received yet.
func TestFault7DistinctValuesOverARedisCluster(t *testing.T) {
	takesLong(t)
	t.Parallel()
	rc := redistest.StartCluster(t, 3, 1)
	c := startOn(t, rc, 3,
		proctest.Loopback(), "--admin-token", rulesToken, "--config",
		configured(t, "namespaces: {default: {hash_tags: true}}"))
	d := &distinctTraffic{c: c, seen: map[string]map[string]bool{}}
	place := twotier.Placement{Partitions: c.Partitions,
		HashTags: twotier.HashTags{"default": true}}
	for i := range 4 {
		d.keys = append(d.keys, fmt.Sprintf("{user-%d}:devices", i),
			fmt.Sprintf("{user-%d}:addresses", i))
		if a, b := place.Of(nil, []byte(d.keys[2*i])),
			place.Of(nil, []byte(d.keys[2*i+1])); a != b {
			t.Fatalf("one tag, two partitions: %d and %d", a, b)
		}
	}
	d.nodes(c.Running())
	for i := range 3 {
		d.done.Go(func() { d.run(i) })
	}
	d.pass(60)
	slot := rc.Slot(t, fmt.Sprintf("tt:{p%d}", place.Of(nil, []byte(d.keys[0]))))
	d.moveSlot(rc, slot)
	old := rc.KillPrimary(t, slot)
	rc.WaitPromotion(t, slot, old)
	d.pass(60)
	d.nodes(without(c.Running(), 1))
	c.Kill(1)
	d.pass(60)
	c.Serve(1)
	c.Settled()
	d.nodes(c.Running())
	d.pass(60)
	c.modeOf(0, "redis")
	d.pass(60)
	c.modeOf(0, "two-tier")
	d.pass(60)
	d.stop.Store(true)
	d.done.Wait()
	d.complete("in the end")
	for _, i := range c.Running() {
		c.Stop(i)
	}
	for i := range 3 {
		c.Serve(i)
	}
	c.Settled()
	d.complete("after all nodes were started again")
}

// moveSlot moves a slot to another primary while values are added.
func (d *distinctTraffic) moveSlot(rc *redistest.Cluster, slot int) {
	t := d.c.T
	t.Helper()
	from := rc.Owner(t, slot)
	to := rc.Primaries(t)[0]
	if to == from {
		to = rc.Primaries(t)[1]
	}
	rc.SetMigrating(t, slot, from, to)
	d.pass(30)
	rc.MigrateKeys(t, slot, from, to, 1)
	d.pass(30)
	for rc.MigrateKeys(t, slot, from, to, 0) > 0 {
	}
	rc.FinishMigration(t, slot, from, to)
	d.pass(30)
}

// complete checks that every node has exactly the acknowledged values.
func (d *distinctTraffic) complete(when string) {
	d.c.T.Helper()
	for _, key := range d.keys {
		d.c.hasDistinct(key, int64(len(d.seen[key])), when)
	}
}
