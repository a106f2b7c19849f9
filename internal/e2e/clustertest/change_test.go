package clustertest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

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
