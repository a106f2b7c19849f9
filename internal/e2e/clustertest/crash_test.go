package clustertest

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// gone waits until the others have taken over the partitions of a dead node.
func (c *cluster) gone() {
	c.T.Helper()
	proctest.UntilNil(c.T, "the others have taken over",
		func() error { return c.Agree(c.Running()) })
}

// With ack=redis no acknowledged event is lost, whether the dead node is back before the others
// notice or after they have taken over.
func TestFault10OwnerKilledWithAckRedis(t *testing.T) {
	c := start(t, 3, "--ack", "redis")
	tr := (&proctest.Traffic{T: t, Ledger: c.Ledger, Retry: true,
		Storing: true}).To(c.Bases()...).Start()
	for i := range 3 {
		tr.Accept(200)
		c.Kill(i)
		tr.To(c.Bases()...)
		tr.Accept(100) // in its place
		if i > 0 {
			c.gone()
			tr.Accept(100)
		}
		c.Serve(i)
		tr.To(c.Bases()...)
		tr.Accept(100)
		c.Settled()
	}
	tr.Accept(200)
	tr.Stop()
	c.Settle("10 SIGKILL of owners with ack=redis", 0)
}

// owned returns the number of acknowledged events of the keys in a node's partitions.
func (c *cluster) owned(v proctest.View, id string) (events int64) {
	place := twotier.Placement{Partitions: c.Partitions}
	for _, key := range c.Ledger.Names() {
		if v.Members[v.Owners[place.Of(nil, []byte(key))]].ID == id {
			events += c.Ledger.Of(key).Acked
		}
	}
	return events
}

// With ack=memory a crash loses the acknowledged counts that the dead node had not flushed: only of
// keys that it owned, and only from the time since the last complete flush.
func TestFault10OwnerKilledWithAckMemory(t *testing.T) {
	c := start(t, 3)
	tr := c.Traffic()
	for i := range 3 {
		tr.Accept(300)
		v, err := c.Nodes[i].Look()
		must.Succeed(t, err)
		id := fmt.Sprint("n", i)
		before := c.owned(v, id)
		c.Barrier()
		var acked proctest.Recent
		proctest.Until(t, "more is counted", func() bool {
			acked.Note(c.owned(v, id))
			return c.owned(v, id) > before+150
		})
		c.Kill(i)
		died := time.Now()
		acked.Note(c.owned(v, id))
		tr.Stop()
		after := c.owned(v, id)
		c.gone()
		held, err := c.Stored(c.Ledger.Names())
		must.Succeed(t, err)
		lost := c.Ledger.WriteOff(held)
		t.Logf("killed: %d lost; acknowledged of its keys since all was flushed: %d, of them in "+
			"the last flush interval about %d",
			lost, after-before, acked.Since(died.Add(-220*time.Millisecond)))
		if lost > after-before {
			t.Error("more was lost than is declared")
		}
		c.Serve(i)
		c.Settled()
		tr = c.Traffic()
	}
	tr.Accept(300)
	tr.Stop()
	c.Settle("10 SIGKILL of owners with ack=memory, but for what was written off", 0)
}

// An owner is paused for so long that the others take over, and then continues as if nothing had
// happened. Nothing is counted twice and nothing is lost.
func TestFault11OwnerPausedPastItsDetection(t *testing.T) {
	c := start(t, 3)
	tr := c.Traffic()
	tr.Accept(300)
	before, err := c.Nodes[1].Look()
	must.Succeed(t, err)
	// Its own clients wait for it. For the others, the remaining nodes take its place.
	own := (&proctest.Traffic{T: t, Ledger: c.Ledger, Retry: true}).To(c.Bases(1)...).Start()
	own.Accept(100)
	tr.To(c.Bases(0, 2)...)
	c.Nodes[1].Pause()
	began := time.Now()
	tr.Accept(300)
	proctest.UntilNil(t, "the others have taken over", func() error { return c.Agree([]int{0, 2}) })
	took := time.Since(began)
	tr.Accept(300)
	if *longFlag {
		proctest.Until(t, "more than half a minute has passed",
			func() bool { tr.Pass(1); return time.Since(began) > 35*time.Second })
	}
	c.Nodes[1].Resume()
	paused := time.Since(began)
	tr.To(c.Bases()...)
	own.Accept(100)
	c.Settled()
	tr.Accept(200)
	tr.Stop()
	own.Stop()
	after, err := c.Nodes[0].Look()
	must.Succeed(t, err)
	if before.RingVersion != after.RingVersion {
		t.Error("the table is not what it was before the pause")
	}
	excess := c.Settle("11 SIGSTOP of an owner", 0)
	t.Logf("paused for %v, taken over after %v; limits were exceeded by %d",
		paused.Round(time.Millisecond), took.Round(time.Millisecond), excess)
}
