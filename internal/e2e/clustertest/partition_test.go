package clustertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// sides starts separate clients for every node: a split cuts nodes off from each other, and every
// client stays with its node.
func (c *cluster) sides() []*proctest.Traffic {
	var all []*proctest.Traffic
	for _, i := range c.Running() {
		all = append(all,
			(&proctest.Traffic{T: c.T, Ledger: c.Ledger, Retry: true,
				Pause: 20 * time.Millisecond}).To(c.Bases(i)...).Start())
	}
	return all
}

func accept(all []*proctest.Traffic, n int64) {
	for _, tr := range all {
		tr.Accept(n)
	}
}

func stopAll(all []*proctest.Traffic) {
	for _, tr := range all {
		tr.Stop()
	}
}

// changes returns how often the nodes changed their tables, according to their logs.
func (c *cluster) changes() (n int) {
	for _, p := range c.Nodes {
		log := p.Log.String()
		n += strings.Count(log, `msg="member joined"`) + strings.Count(log, `msg="member gone"`)
	}
	return n
}

// last lets clients count while a fault lasts.
func last(all []*proctest.Traffic, d time.Duration) {
	for by := time.Now().Add(d); time.Now().Before(by); {
		accept(all, 1)
	}
}

func TestFault12Partition(t *testing.T) {
	t.Parallel()
	type split struct {
		name   string
		groups [][]int
		least  time.Duration // after both sides know; 0: heal before they do
		long   bool
	}
	for _, s := range []split{
		{"2 from 1 for a moment", [][]int{{0, 1}, {2}}, 0, false},
		{"2 from 1", [][]int{{0, 1}, {2}}, 2 * time.Second, false},
		{"1 from 1 from 1", [][]int{{0}, {1}, {2}}, 2 * time.Second, false},
		{"2 from 1 for more than a minute", [][]int{{0, 1}, {2}}, 70 * time.Second, true},
		{"1 from 1 from 1 for more than a minute", [][]int{{0}, {1}, {2}}, 70 * time.Second, true},
	} {
		if s.long && !*longFlag {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			c, l := startLab(t, 3)
			all := c.sides()
			accept(all, 100)
			l.part(s.groups...)
			began := time.Now()
			if s.least == 0 {
				last(all, 3*time.Second)
			} else {
				for _, group := range s.groups {
					proctest.UntilNil(t, "each side goes on by itself",
						func() error { return c.Agree(group) })
				}
				t.Logf("each side has taken over after %v",
					time.Since(began).Round(100*time.Millisecond))
				last(all, s.least)
			}
			accept(all, 100)
			l.heal(3)
			healed := time.Now()
			accept(all, 100)
			c.Settled()
			t.Logf("split for %v, one cluster again %v after",
				healed.Sub(began).Round(100*time.Millisecond),
				time.Since(healed).Round(100*time.Millisecond))
			accept(all, 100)
			stopAll(all)
			c.Settle("12 "+s.name, 0)
		})
	}
}

// TestFault13OneWay stops one node from receiving another's packets, but not the reverse. The third
// node confirms that both are alive, so the table should stay as it is. Only internal/e2e/simtest
// checks that: here a node may be late because the machine is busy.
func TestFault13OneWay(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(l *lab, on bool){
		"dropped": func(l *lab, on bool) {
			if on {
				l.rule(0, l.from("drop", 1))
			} else {
				l.rule(0)
			}
		},
		"blackhole route": func(l *lab, on bool) {
			verb := map[bool]string{true: "add", false: "del"}[on]
			must.Succeed(l.t, l.ip("-n", l.space(firstNode+1), "route", verb, "blackhole",
				l.addr(firstNode)+"/32"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := startLab(t, 3)
			all := c.sides()
			accept(all, 100)
			before := c.changes()
			cut(l, true)
			last(all, 12*time.Second)
			during := c.changes() - before
			cut(l, false)
			c.Settled()
			accept(all, 100)
			stopAll(all)
			t.Logf("the three nodes changed their tables %d times in 12 s of a one-way cut, %d "+
				"times after", during, c.changes()-before-during)
			c.Settle("13 one way, "+name, 0)
		})
	}
}

// TestFault14OneOfTwoChannels cuts gossip while HTTP works, and HTTP between nodes while gossip
// works.
func TestFault14OneOfTwoChannels(t *testing.T) {
	t.Parallel()
	for name, port := range map[string]int{"gossip blocked": gossipPort, "HTTP blocked": httpPort} {
		t.Run(name, func(t *testing.T) {
			c, l := startLab(t, 3)
			all := c.sides()
			accept(all, 100)
			before := c.changes()
			for i := range 3 {
				others := slices.DeleteFunc([]int{0, 1, 2}, func(o int) bool { return o == i })
				l.rule(i, l.from(fmt.Sprintf("th dport %d drop", port), others...),
					l.from(fmt.Sprintf("th sport %d drop", port), others...))
			}
			last(all, 10*time.Second)
			accept(all, 50)
			during := c.changes() - before
			l.heal(3)
			c.Settled()
			accept(all, 100)
			stopAll(all)
			t.Logf("%d changes of tables", during)
			c.Settle("14 "+name, 0)
		})
	}
}

// TestFault15RedisReachableFromSome cuts one node off from Redis, then two.
func TestFault15RedisReachableFromSome(t *testing.T) {
	c, l := startLab(t, 3)
	all := c.sides()
	accept(all, 100)
	// Requests with ack=redis have an unknown outcome and count as U. All others succeed.
	noRedis := "ip saddr " + l.addr(redisHost) + " drop"
	l.rule(0, noRedis)
	last(all, 3*time.Second)
	l.rule(1, noRedis)
	last(all, 3*time.Second)
	l.heal(3)
	accept(all, 200)
	stopAll(all)
	c.Settle("15 Redis reachable from some", 0)
}

// TestFault16LossOfDatagrams drops a share of the datagrams to every node.
func TestFault16LossOfDatagrams(t *testing.T) {
	c, l := startLab(t, 3)
	all := c.sides()
	accept(all, 100)
	for _, percent := range []int{10, 30, 50} {
		before := c.changes()
		for i := range 3 {
			l.rule(i, fmt.Sprintf("meta l4proto udp numgen random mod 100 < %d drop", percent))
		}
		last(all, 7*time.Second)
		t.Logf("%d %% lost: %d changes of tables in 7 s", percent, c.changes()-before)
	}
	l.heal(3)
	c.Settled()
	accept(all, 100)
	stopAll(all)
	c.Settle("16 loss of datagrams", 0)
}

// TestExcessAcrossAPartition drives a limit from both sides of a real split: before the split is
// noticed, while nodes take the place of an owner that they can't reach, and afterwards, when each
// side owns all partitions.
func TestExcessAcrossAPartition(t *testing.T) {
	c, l := startLab(t, 3)
	const rate, limit, flush = 100, 400, 200 * time.Millisecond
	sides := []*side{{node: c.Nodes[0]}, {node: c.Nodes[1]}, {node: c.Nodes[2]}}
	l.part([]int{0}, []int{1}, []int{2})
	// It takes about a second to notice that the key's owner can't be reached. Don't measure that.
	for _, s := range sides {
		proctest.UntilNil(t, "a side does without the owner", func() error {
			status, out, err := s.node.TryGet("/v1/count?key=early&window=1m")
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("status %d: %s", status, out)
			}
			return err
		})
	}
	early := drive(t, sides, "early", limit, rate, flush)
	early.check(t, c, "early")
	for i := range 3 {
		proctest.UntilNil(t, "each goes on by itself", func() error { return c.Agree([]int{i}) })
	}
	sides = again(sides)
	late := drive(t, sides, "later", limit, rate, flush)
	late.check(t, c, "later")
	t.Logf("before and after the split was noticed:%s\n%s\n%s", tallyHead, early.String(),
		late.String())
}

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
	c := start(t, 3)
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
