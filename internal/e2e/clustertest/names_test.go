package clustertest

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestFault17SameNameOnAnotherPort restarts a killed node at once, on other ports, while the others
// still believe that the old one is alive.
func TestFault17SameNameOnAnotherPort(t *testing.T) {
	c := start(t, 3)
	tr := c.Traffic()
	tr.Accept(200)
	tr.Stop()
	c.Barrier()
	old := c.Nodes[1]
	c.Kill(1)
	back := c.Serve(1)
	for back.Gossip == old.Gossip || back.Listen == old.Listen { // by chance
		c.Kill(1)
		back = c.Serve(1)
	}
	tr = c.Traffic()
	tr.Accept(300)
	tr.Stop()
	for _, i := range c.Running() { // its death may not have been noticed yet
		v, err := c.Nodes[i].Look()
		must.Succeed(t, err)
		for _, m := range v.Members {
			if m.Address == old.Listen {
				t.Errorf("node %d still has the dead one as a member", i)
			}
		}
	}
	c.Settle("17 same name, other ports", 0)
}

// TestFault17TwoNodesWithOneName starts a second node under the name of a live one. The second node
// is refused. It owns nothing before that, so the first one is not disturbed and the second answers
// no request in its place.
func TestFault17TwoNodesWithOneName(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startOn(t, server, 3, proctest.Loopback())
	tr := c.Traffic()
	tr.Accept(200)
	for range 2 {
		twin, err := program.TryServe(t, proctest.Options{}, c.Command(1)...)
		if err == nil {
			t.Fatalf("a second n1 was let in: it listens on %s", twin.Listen)
		}
		reason := "n1 is alive at " + c.Nodes[1].Listen
		if status := twin.ExitCode(); status != 1 || !strings.Contains(twin.Log.String(), reason) {
			t.Errorf("exit status %d, want 1 and %q:\n%s", status, reason, twin.Log.String())
		}
		tr.Accept(200)
	}
	c.Settled()
	tr.Accept(200)
	tr.Stop()
	orderly(t, tr, c.Settle("17 two nodes with one name", 0))
}

// TestFault17Strangers checks that nodes that don't fit are refused with a reason and change
// nothing.
func TestFault17Strangers(t *testing.T) {
	c := start(t, 3, "--cluster-secret", "a secret of the nodes")
	tr := c.Traffic()
	for name, test := range map[string]struct{ args, reason string }{
		"wrong secret": {"--cluster-secret=another secret, not theirs",
			"is the cluster secret the same?"},
		"no secret":             {"--cluster-secret=", "is the cluster secret the same?"},
		"other partition count": {"--partitions=97", "partitions"},
		"other hash seed":       {"--hash-seed=7", "seed"},
	} {
		// If a flag is given twice, the last one counts.
		p, err := program.TryServe(t, proctest.Options{}, append(c.Command(7), test.args)...)
		if err == nil {
			t.Errorf("%s: it was let in", name)
			continue
		}
		if status := p.ExitCode(); status != 1 || !strings.Contains(p.Log.String(), test.reason) {
			t.Errorf("%s: exit status %d, want 1 and %q:\n%s", name, status, test.reason,
				p.Log.String())
		}
		lines := strings.Split(strings.TrimSpace(p.Log.String()), "\n")
		t.Logf("%s: %s", name, lines[len(lines)-1])
	}
	tr.Accept(200)
	tr.Stop()
	orderly(t, tr, c.Settle("17 strangers", 0))
}

// TestSeedThatStandsStill starts nodes while the node they join stands still for longer than one
// attempt to reach it lasts. The node with its secret becomes a member, the other one is refused.
func TestSeedThatStandsStill(t *testing.T) {
	c := start(t, 1, "--cluster-secret", "a secret of the nodes")
	command := c.Command(1)
	c.Nodes[0].Pause()
	type result struct {
		p   *proctest.Process
		err error
	}
	fits, stranger := make(chan result, 1), make(chan result, 1)
	for to, args := range map[chan result][]string{
		fits:     command,
		stranger: append(c.Command(2), "--cluster-secret=another secret, not theirs"),
	} {
		go func() {
			p, err := program.TryServe(t, proctest.Options{}, args...)
			to <- result{p, err}
		}()
	}
	time.Sleep(4 * time.Second)
	c.Nodes[0].Resume()
	if r := <-stranger; r.err == nil || r.p.ExitCode() != 1 ||
		!strings.Contains(r.p.Log.String(), "is the cluster secret the same?") {
		t.Errorf("the stranger: %v\n%s", r.err, r.p.Log.String())
	}
	r := <-fits
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, r.p.Log.String())
	}
	c.Nodes[1] = r.p
	c.Settled()
}
