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
	tr := c.traffic()
	for i := range 3 {
		tr.Accept(300)
		c.stop(i)
		tr.Accept(100)
		c.serve(i)
		tr.To(c.bases()...)
		tr.Accept(100)
		c.settled() // a rolling restart waits until a node is back
	}
	tr.Accept(300)
	tr.Stop()
	orderly(t, tr, c.settle("9 rolling restart", 0))
}

func TestFault9ScaleOutAndIn(t *testing.T) {
	c := start(t, 3)
	tr := c.traffic()
	tr.Accept(300)
	c.serve(3)
	tr.To(c.bases()...)
	tr.Accept(300)
	c.settled()
	tr.Accept(100)
	c.stop(3)
	tr.Accept(300)
	c.stop(0)
	tr.Accept(300)
	tr.Stop()
	orderly(t, tr, c.settle("9 out to four and in to two", 0))
}
