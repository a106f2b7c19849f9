package clustertest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// startBans starts three nodes over a Redis, with banRules. It returns a key of each node with two
// events in Redis: a third would be allowed, two more would not.
func startBans(t *testing.T, r proctest.Redis, args ...string) (c *cluster, keys []string) {
	t.Helper()
	c = startOver(t, r, 3, append([]string{"--admin-token", rulesToken,
		"--resp", "127.0.0.1:0"}, args...)...)
	c.putRules(0, 0, banRules)
	c.haveRules(1)
	for i := range 3 {
		keys = append(keys, c.keyOf(i, "user=ban"))
		c.twoOfThree(keys[i])
	}
	return c, keys
}

// twoOfThree counts two events of a key in Redis. An unanswered request may have been counted, so
// the events are added one by one until there are two.
func (c *cluster) twoOfThree(key string) {
	c.T.Helper()
	proctest.UntilNil(c.T, "two events", func() error {
		n, err := c.eventsOf(0, "default", key)
		if err == nil && n < 2 {
			_, _, _ = c.Nodes[0].Post("/v1/add", fmt.Sprintf(`{"key":%q,"ack":"redis"}`, key))
			err = fmt.Errorf("%d events", n)
		}
		if err == nil && n > 2 {
			c.T.Fatalf("%d events of %s", n, key)
		}
		return err
	})
}

// eventsOf asks a node for the number of events of a key in a day.
func (c *cluster) eventsOf(i int, ns, key string) (n int64, err error) {
	a, err := c.Nodes[i].TryCount("window=24h&ns=" + ns + "&key=" + url.QueryEscape(key))
	if err != nil {
		return 0, err
	}
	return a.Counts[0].Count, nil
}

// overstep asks for two more events of a key that has two of three, which bans it. It returns when
// the ban ends.
func (c *cluster) overstep(i int, key, ack string) (until int64) {
	c.T.Helper()
	a := c.asksFor(i, key, 2, ack)
	if a.Allowed || len(a.Bans) != 1 || a.Bans[0].Key != key || a.RetryAfter <= 0 {
		c.T.Fatalf("the breach of %s at node %d: %+v", key, i, a)
	}
	return a.Bans[0].Until
}

// hasEvents fails the test unless every running node reports that number of events of a key in a
// day.
func (c *cluster) hasEvents(ns, key string, want int64, when string) {
	c.T.Helper()
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, when, func() error {
			n, err := c.eventsOf(i, ns, key)
			if err == nil && n != want {
				c.T.Fatalf("%s: node %d has %d events of %s, want %d", when, i, n, key, want)
			}
			return err
		})
	}
}

// TestABanStartsWhileRedisIsDown checks that every node refuses a ban that starts then. Redis comes
// back empty: the bans get there with the counts, so that they hold after all nodes were started
// again.
func TestABanStartsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, keys := startBans(t, server)
	until := make([]int64, 3)
	until[0] = c.overstep(1, keys[0], "redis")
	c.flushed()
	server.Kill()
	for i := 1; i < 3; i++ {
		until[i] = c.overstep((i+1)%3, keys[i], "memory")
	}
	hold := func(when string) {
		t.Helper()
		for i, key := range keys {
			c.stillBanned(key, until[i], when)
			c.hasEvents("default", key, 2, when)
		}
	}
	hold("while Redis is down")
	server.Restart(t)
	hold("as Redis is back, empty")
	c.seeRedis()
	for i := range c.Nodes {
		proctest.UntilNil(t, "bans and counts are in Redis again", func() error {
			return c.inRedis(keys, i)
		})
	}
	c.startAgain(c.Kill, 3)
	c.haveRules(1)
	hold("after all nodes were started again")
}

// inRedis returns an error unless Redis has the events of the keys and their bans, and node i has
// no unflushed changes.
func (c *cluster) inRedis(keys []string, i int) error {
	if n := c.Nodes[i].Pending(); n > 0 {
		return fmt.Errorf("%d buckets are pending", n)
	}
	held, err := c.Stored(keys)
	if err != nil {
		return err
	}
	for _, key := range keys {
		bans, err := c.Direct.Keys(c.T.Context(), "tt:{p*}:@bans/default:login/"+key).Result()
		if err != nil || len(bans) != 1 || held[key] != 2 {
			return fmt.Errorf("%s: %d events, bans %q, %w", key, held[key], bans, err)
		}
	}
	return nil
}

// TestABanOutlivesAKillRightAfterIt kills the owner right after a ban with ack=redis, asked for at
// any node, and after a ban with ack=memory once it is in Redis.
func TestABanOutlivesAKillRightAfterIt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, keys := startBans(t, server)
	for i, test := range []struct {
		asked int // by how much the node that is asked is after the owner
		ack   string
	}{{0, "redis"}, {1, "redis"}, {2, "memory"}} {
		until := c.overstep((i+test.asked)%3, keys[i], test.ack)
		if test.ack == "memory" {
			c.Nodes[i].Flushed()
		}
		c.Kill(i)
		when := fmt.Sprintf("ack=%s, asked %d after the owner, which was killed", test.ack,
			test.asked)
		c.stillBanned(keys[i], until, when)
		c.hasEvents("default", keys[i], 2, when)
		c.Serve(i)
		c.Settled()
		c.haveRules(1)
		c.stillBanned(keys[i], until, when+" and is back")
	}
}

// TestABanThatAKillLoses starts bans with ack=memory, and kills their owner before it may have
// flushed them. A ban holds unchanged or is gone: then the counts decide, and ban the key again.
func TestABanThatAKillLoses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, keys := startBans(t, server, "--flush-interval", "1h", "--max-lag", "0")
	for i, key := range keys[:2] {
		until := c.overstep(2, key, "memory")
		c.stillBanned(key, until, "before its owner is killed")
		c.Kill(i)
		c.hasEvents("default", key, 2, "after the kill")
		if a := c.asksFor(2, key, 2, "redis"); a.Allowed || len(a.Bans) != 1 ||
			!a.Bans[0].Started && a.Bans[0].Until != until {
			t.Errorf("after the kill: %+v, want a ban until %d or another one", a, until)
		} else if until = a.Bans[0].Until; a.Bans[0].Started {
			t.Logf("%s: the ban was lost", key)
		}
		c.stillBanned(key, until, "after the kill")
		c.Serve(i)
		c.Settled()
		c.haveRules(1)
		c.stillBanned(key, until, "its owner is back")
	}
}

// TestBansInARedisCluster starts bans in two-tier mode and in Redis mode, where an acquire over
// keys in several slots takes several scripts.
func TestBansInARedisCluster(t *testing.T) {
	t.Parallel()
	rc := redistest.StartCluster(t, 3, 0)
	c, keys := startBans(t, rc)
	until := c.overstep(1, keys[0], "redis")
	c.stillBanned(keys[0], until, "in two-tier mode")
	c.bannedEverywhere(keys[0])
	c.acrossSlots(keys[1], "two-tier")
	c.modeOf(0, "redis")
	c.stillBanned(keys[0], until, "in Redis mode")
	c.bannedEverywhere(keys[0])
	c.acrossSlots(keys[2], "redis")
	c.modeOf(0, "two-tier")
	c.stillBanned(keys[0], until, "in two-tier mode again")
	c.hasEvents("default", keys[0], 2, "at the end")
}

// acrossSlots bans a key that has two of three events in an acquire over many slots with
// count_denied, which counts all of them, and then none of them because of the ban.
func (c *cluster) acrossSlots(key, mode string) {
	t := c.T
	t.Helper()
	var others []string
	checks := fmt.Sprintf(`{"key":%q,"n":2,"rules":["login"]}`, key)
	for i := range 6 {
		other := fmt.Sprint("beside-", key, "-", i)
		one := fmt.Sprintf(`{"key":%q,"rules":["plain"]}`, other)
		if others = append(others, other); i < 3 {
			checks = one + "," + checks
		} else {
			checks += "," + one
		}
	}
	ask := func(more string) string {
		return string(c.Nodes[0].MustPost("/v1/acquire", `{"checks":[`+checks+`]`+more+`}`))
	}
	each := func(n, of int64, when string) {
		t.Helper()
		c.hasEvents("default", key, of, mode+" mode: "+when)
		for _, other := range others {
			c.hasEvents("other", other, n, mode+" mode: "+when)
		}
	}
	if text := ask(`,"dry_run":true`); strings.Contains(text, `"bans"`) {
		t.Errorf("%s mode: dry run: %s", mode, text)
	}
	each(0, 2, "a dry run")
	if text := ask(`,"count_denied":true`); !strings.Contains(text, `"started":true`) ||
		!strings.Contains(text, `"allowed":false`) {
		t.Errorf("%s mode: the breach: %s", mode, text)
	}
	each(1, 4, "the breach")
	for _, more := range []string{"", `,"count_denied":true`, `,"dry_run":true`} {
		const by = `"refused_by":["checks[3].login","checks[3].login/ban"]`
		if text := ask(more); !strings.Contains(text, by) || strings.Contains(text, `"ts"`) ||
			strings.Count(text, `"count":1,`) != len(others) || strings.Contains(text, `"started"`) {
			t.Errorf("%s mode: during the ban%s: %s", mode, more, text)
		}
	}
	each(1, 4, "during the ban")
}
