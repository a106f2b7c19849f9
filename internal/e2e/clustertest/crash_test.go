package clustertest

import (
	"fmt"
	"strings"
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

// orderly checks that a planned change, which is not a failure, did not disturb clients.
func orderly(t *testing.T, tr *proctest.Traffic, excess int64) {
	t.Helper()
	if n := tr.GaveUp.Load(); n > 0 {
		t.Errorf("%d requests were refused for as long as clients sent them again", n)
	}
	if excess > 0 {
		t.Errorf("limits were exceeded by %d", excess)
	}
}

func TestFault9RollingRestart(t *testing.T) {
	c := start(t, 3)
	tr := c.Traffic()
	for i := range 3 {
		tr.Accept(300)
		c.Stop(i)
		tr.Accept(100)
		c.Serve(i)
		tr.To(c.Bases()...)
		tr.Accept(100)
		c.Settled() // a rolling restart waits until a node is back
	}
	tr.Accept(300)
	tr.Stop()
	orderly(t, tr, c.Settle("9 rolling restart", 0))
}

func TestFault9ScaleOutAndIn(t *testing.T) {
	c := start(t, 3)
	tr := c.Traffic()
	tr.Accept(300)
	c.Serve(3)
	tr.To(c.Bases()...)
	tr.Accept(300)
	c.Settled()
	tr.Accept(100)
	c.Stop(3)
	tr.Accept(300)
	c.Stop(0)
	tr.Accept(300)
	tr.Stop()
	orderly(t, tr, c.Settle("9 out to four and in to two", 0))
}

// TestFault11LimitHoldsAfterAPause pauses the owner of a key. Another node fills the key's limit:
// in the owner's place, or after it has taken the key over. Requests wait at the owner when it
// resumes. None of them is admitted, and the owner goes on deciding about its keys.
func TestFault11LimitHoldsAfterAPause(t *testing.T) {
	for name, test := range map[string]struct {
		long   bool
		source string
	}{
		"shorter than its detection": {false, `"source":"fallback"`},
		"longer":                     {true, `"source":"memory"`},
	} {
		t.Run(name, func(t *testing.T) {
			if test.long {
				takesLong(t)
			}
			c := start(t, 2)
			key := c.keyOf(1, "limited")
			body := func(n int) string {
				return fmt.Sprintf(`{"key":%q,"n":%d,"limits":[{"window":"24h","max":60}]}`, key, n)
			}
			c.Nodes[1].MustPost("/v1/acquire", body(20))
			c.Holds(map[string]int64{key: 20})
			c.Nodes[1].Pause()
			if test.long {
				proctest.UntilNil(t, "the other has taken over",
					func() error { return c.Agree([]int{0}) })
			}
			proctest.Until(t, "the other fills the limit", func() bool {
				a := <-asks(c.Nodes[0], body(40))
				t.Logf("while the owner stands still: %s", a.body)
				filled := strings.Contains(a.body, `"allowed":true`)
				if filled && !strings.Contains(a.body, test.source) {
					t.Fatalf("admitted elsewhere: %s", a.body)
				}
				return filled
			})
			var waiting []<-chan answer
			for range 20 {
				waiting = append(waiting, asks(c.Nodes[1], body(1)))
			}
			c.Nodes[1].Resume()
			for _, told := range waiting {
				if a := <-told; strings.Contains(a.body, `"allowed":true`) {
					t.Errorf("admitted beyond the limit: %s", a.body)
				}
			}
			c.Settled()
			other := fmt.Sprintf(`{"key":%q,"limits":[{"window":"24h","max":1000}]}`,
				c.keyOf(1, "other"))
			proctest.Until(t, "the owner decides again", func() bool {
				a := <-asks(c.Nodes[1], other)
				return strings.Contains(a.body, `"source":"memory"`)
			})
			proctest.UntilNil(t, "all is counted once", func() error {
				held, err := c.Same([]string{key})
				if err == nil && held[key] != 60 {
					err = fmt.Errorf("%d are counted, the limit is 60", held[key])
				}
				return err
			})
		})
	}
}
