package clustertest

import (
	"fmt"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/proctest"
)

// gone waits until the others have taken over the partitions of a dead node.
func (c *cluster) gone() {
	c.t.Helper()
	proctest.UntilNil(c.t, "the others have taken over",
		func() error { return c.agree(c.running()) })
}

// With ack=redis no acknowledged event is lost, whether the dead node is back before the others
// notice or after they have taken over.
func TestFault10OwnerKilledWithAckRedis(t *testing.T) {
	c := start(t, 3, "--ack", "redis")
	tr := (&proctest.Traffic{T: t, Ledger: c.l, Retry: true,
		Storing: true}).To(c.bases()...).Start()
	for i := range 3 {
		tr.Accept(200)
		c.kill(i)
		tr.To(c.bases()...)
		tr.Accept(100) // in its place
		if i > 0 {
			c.gone()
			tr.Accept(100)
		}
		c.serve(i)
		tr.To(c.bases()...)
		tr.Accept(100)
		c.settled()
	}
	tr.Accept(200)
	tr.Stop()
	c.settle("10 SIGKILL of owners with ack=redis", 0)
}

// owned returns the number of acknowledged events of the keys in a node's partitions.
func (c *cluster) owned(v view, id string) (events int64) {
	place := twotier.Placement{Partitions: c.parts}
	for _, key := range c.l.Names() {
		if v.Members[v.Owners[place.Of(nil, []byte(key))]].ID == id {
			events += c.l.Of(key).Acked
		}
	}
	return events
}

// With ack=memory a crash loses the acknowledged counts that the dead node had not flushed: only of
// keys that it owned, and only from the time since the last complete flush.
func TestFault10OwnerKilledWithAckMemory(t *testing.T) {
	c := start(t, 3)
	tr := c.traffic()
	for i := range 3 {
		tr.Accept(300)
		v, err := look(c.nodes[i])
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("n", i)
		before := c.owned(v, id)
		c.barrier()
		var acked proctest.Recent
		proctest.Until(t, "more is counted", func() bool {
			acked.Note(c.owned(v, id))
			return c.owned(v, id) > before+150
		})
		c.kill(i)
		died := time.Now()
		acked.Note(c.owned(v, id))
		tr.Stop()
		after := c.owned(v, id)
		c.gone()
		held, err := c.stored(c.l.Names())
		if err != nil {
			t.Fatal(err)
		}
		lost := c.l.WriteOff(held)
		t.Logf("killed: %d lost; acknowledged of its keys since all was flushed: %d, of them in "+
			"the last flush interval about %d",
			lost, after-before, acked.Since(died.Add(-220*time.Millisecond)))
		if lost > after-before {
			t.Error("more was lost than is declared")
		}
		c.serve(i)
		c.settled()
		tr = c.traffic()
	}
	tr.Accept(300)
	tr.Stop()
	c.settle("10 SIGKILL of owners with ack=memory, but for what was written off", 0)
}

// An owner is paused for so long that the others take over, and then continues as if nothing had
// happened. Nothing is counted twice and nothing is lost.
func TestFault11OwnerPausedPastItsDetection(t *testing.T) {
	c := start(t, 3)
	tr := c.traffic()
	tr.Accept(300)
	before, err := look(c.nodes[1])
	if err != nil {
		t.Fatal(err)
	}
	// Its own clients wait for it. For the others, the remaining nodes take its place.
	own := (&proctest.Traffic{T: t, Ledger: c.l, Retry: true}).To(c.bases(1)...).Start()
	own.Accept(100)
	tr.To(c.bases(0, 2)...)
	c.nodes[1].Pause()
	began := time.Now()
	tr.Accept(300)
	proctest.UntilNil(t, "the others have taken over", func() error { return c.agree([]int{0, 2}) })
	took := time.Since(began)
	tr.Accept(300)
	if *longFlag {
		proctest.Until(t, "more than half a minute has passed",
			func() bool { tr.Pass(1); return time.Since(began) > 35*time.Second })
	}
	c.nodes[1].Resume()
	paused := time.Since(began)
	tr.To(c.bases()...)
	own.Accept(100)
	c.settled()
	tr.Accept(200)
	tr.Stop()
	own.Stop()
	after, err := look(c.nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	if before.RingVersion != after.RingVersion {
		t.Error("the table is not what it was before the pause")
	}
	excess := c.settle("11 SIGSTOP of an owner", 0)
	t.Logf("paused for %v, taken over after %v; limits were exceeded by %d",
		paused.Round(time.Millisecond), took.Round(time.Millisecond), excess)
}
