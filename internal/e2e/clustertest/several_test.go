package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// keyOf returns a key that a node owns.
func (c *cluster) keyOf(i int, prefix string) string {
	c.T.Helper()
	v, err := c.Nodes[i].Look()
	must.Succeed(c.T, err)
	place := twotier.Placement{Partitions: c.Partitions}
	for n := 0; ; n++ {
		key := fmt.Sprint(prefix, n)
		if v.Members[v.Owners[place.Of(nil, []byte(key))]].ID == fmt.Sprint("n", i) {
			return key
		}
	}
}

// acquiring returns the request to acquire one of each key. The limit of each is one.
func acquiring(keys ...string) string {
	var checks []string
	for _, key := range keys {
		checks = append(checks,
			fmt.Sprintf(`{"key":%q,"limits":[{"window":"24h","max":1}]}`, key))
	}
	return `{"checks":[` + strings.Join(checks, ",") + `]}`
}

// answer is the status and the body of an answer, or an error.
type answer struct {
	status int
	body   string
	err    error
}

// acquainted makes node 0 exchange messages with the others: before the first message it asks for
// their time.
func (c *cluster) acquainted() {
	c.Nodes[0].MustPost("/v1/acquire",
		acquiring(c.keyOf(0, "hello"), c.keyOf(1, "hello"), c.keyOf(2, "hello")))
}

// asks sends a request to a node and returns a channel for its answer.
func asks(p *proctest.Process, body string) <-chan answer {
	told := make(chan answer, 1)
	go func() {
		status, text, err := p.Post("/v1/acquire", body)
		told <- answer{status, string(text), err}
	}()
	return told
}

// forwarded returns how many operations a node has sent to others, or run for them.
func forwarded(p *proctest.Process, direction string) int64 {
	return p.Metric("twotier_forwarded_total", fmt.Sprintf("direction=%q", direction))
}

// TestDeciderKilledBeforeItDecides acquires keys of two nodes. One has reserved its part and asked
// the other to decide, which hangs and is then killed. It is unknown whether the decider has
// counted: the client gets an unknown outcome, and the reservation is counted, so that no limit is
// exceeded.
func TestDeciderKilledBeforeItDecides(t *testing.T) {
	c := start(t, 3)
	c.acquainted()
	mine, its := c.keyOf(0, "mine"), c.keyOf(1, "its")
	sent := forwarded(c.Nodes[0], "out")
	c.Nodes[1].Pause()
	told := asks(c.Nodes[0], acquiring(mine, its))
	proctest.Until(t, "the decider is asked",
		func() bool { return forwarded(c.Nodes[0], "out") > sent })
	c.Kill(1)
	if a := <-told; a.err != nil || a.status != 503 ||
		!strings.Contains(a.body, `"outcome":"unknown"`) {
		t.Errorf("told %+v, want that the outcome is unknown", a)
	}
	c.gone()
	proctest.Until(t, "what was reserved is counted",
		func() bool { return c.Nodes[2].Count(mine, "24h").Counts[0].Count == 1 })
	if n := c.Nodes[0].Count(its, "24h").Counts[0].Count; n != 0 {
		t.Errorf("the dead node's part has a count of %d", n)
	}
	if a := <-asks(c.Nodes[2], acquiring(mine)); a.err != nil ||
		!strings.Contains(a.body, `"allowed":false`) {
		t.Errorf("one more: %+v", a)
	}
}

// TestDeciderPausedBeforeItDecides pauses the decider until the others have taken over its
// partitions. The reservations are counted. Once the decider resumes, it turns out not to have
// carried out the acquire, and the counts are taken back.
func TestDeciderPausedBeforeItDecides(t *testing.T) {
	takesLong(t)
	c := start(t, 3)
	c.acquainted()
	mine, its, third := c.keyOf(0, "mine"), c.keyOf(1, "its"), c.keyOf(2, "third")
	sent := forwarded(c.Nodes[0], "out")
	c.Nodes[1].Pause()
	told := asks(c.Nodes[0], acquiring(mine, third, its))
	proctest.Until(t, "the decider is asked",
		func() bool { return forwarded(c.Nodes[0], "out") > sent+1 })
	if a := <-told; a.err != nil || a.status != 503 ||
		!strings.Contains(a.body, `"outcome":"unknown"`) {
		t.Errorf("told %+v, want that the outcome is unknown", a)
	}
	count := func(key string) int64 { return c.Nodes[0].Count(key, "24h").Counts[0].Count }
	proctest.Until(t, "what was reserved is counted",
		func() bool { return count(mine) == 1 && count(third) == 1 })
	c.Nodes[1].Resume()
	c.Settled()
	proctest.Until(t, "it is taken back", func() bool { return count(mine)+count(third) == 0 })
	if n := count(its); n != 0 {
		t.Errorf("the decider's part has a count of %d", n)
	}
	if a := <-asks(c.Nodes[2], acquiring(mine, third, its)); a.err != nil ||
		!strings.Contains(a.body, `"allowed":true`) {
		t.Errorf("again: %+v", a)
	}
}

// TestCoordinatorKilledBetweenTheSteps acquires keys of three nodes. One of them has reserved its
// part; the decider hangs, and meanwhile the coordinator is killed. The two remaining nodes either
// both count or both don't.
func TestCoordinatorKilledBetweenTheSteps(t *testing.T) {
	c := start(t, 3)
	c.acquainted()
	keys := []string{c.keyOf(0, "first"), c.keyOf(2, "second"), c.keyOf(1, "third")}
	served := forwarded(c.Nodes[2], "in")
	c.Nodes[1].Pause()
	told := asks(c.Nodes[0], acquiring(keys...))
	proctest.Until(t, "the second part is reserved",
		func() bool { return forwarded(c.Nodes[2], "in") > served })
	if n := c.Nodes[2].Count(keys[1], "24h").Counts[0].Count; n != 0 {
		t.Errorf("it has a count of %d already", n)
	}
	c.Kill(0)
	// If it is killed late, it has already answered with an unknown outcome.
	if a := <-told; a.err == nil &&
		(a.status != 503 || !strings.Contains(a.body, `"outcome":"unknown"`)) {
		t.Errorf("a dead node says %+v", a)
	}
	c.Nodes[1].Resume()
	c.gone()
	if second, third := c.counted(keys[1]), c.counted(keys[2]); second != third {
		t.Errorf("counted: the second part %v, the third %v", second, third)
	}
}

// counted reports whether a key was counted, by acquiring it until its count is one: before that, a
// reservation may refuse.
func (c *cluster) counted(key string) bool {
	c.T.Helper()
	admitted := false
	proctest.Until(c.T, "it is known what has become of "+key, func() bool {
		a := <-asks(c.Nodes[1], acquiring(key))
		admitted = admitted || strings.Contains(a.body, `"allowed":true`)
		return c.Nodes[1].Count(key, "24h").Counts[0].Count == 1
	})
	return !admitted
}
