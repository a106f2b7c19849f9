package clustertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// race is a set of clients that acquire the same few keys through different nodes until nothing
// more is allowed.
type race struct {
	c     *cluster
	limit int64
	keys  []string
	bases atomic.Pointer[[]string]
	http  *http.Client
	pause time.Duration // of a client between two requests
	// gate is how many acquires may be allowed before the clients ask far more rarely, so that the
	// limits are not used up while a test waits for an event. 0 means no gate.
	gate atomic.Int64

	allowed, unknown []atomic.Int64 // by key
	tries            atomic.Int64
	quit             chan struct{}
	running          sync.WaitGroup
}

// acquire starts clients of every node with the given base URLs.
func (c *cluster) acquire(clients int, limit int64, keys []string, pause time.Duration,
	bases []string) *race {
	r := &race{
		c: c, limit: limit, keys: keys, http: proctest.NewClient(), pause: pause,
		quit:    make(chan struct{}),
		allowed: make([]atomic.Int64, len(keys)), unknown: make([]atomic.Int64, len(keys)),
	}
	r.to(bases)
	for i := range clients {
		r.running.Go(func() { r.runClient(i) })
	}
	c.T.Cleanup(r.stop)
	return r
}

// to makes the clients ask these nodes from now on.
func (r *race) to(bases []string) { r.bases.Store(&bases) }

func (r *race) stop() {
	select {
	case <-r.quit:
	default:
		close(r.quit)
	}
	r.running.Wait()
	r.http.CloseIdleConnections()
}

// beyond is how much more rarely the clients ask beyond the gate.
const beyond = 200

// runClient asks the nodes in turn, for one key after the other.
func (r *race) runClient(i int) {
	for n := i; ; n++ {
		select {
		case <-r.quit:
			return
		case <-time.After(r.pause/2 + rand.N(r.pause+1)):
		}
		if r.isBeyond() && rand.N(beyond) > 0 {
			continue
		}
		bases := *r.bases.Load()
		key := rand.N(len(r.keys))
		status, out,
			err := (&proctest.Process{Base: bases[n%len(bases)], HTTP: r.http}).Post("/v1/acquire",
			fmt.Sprintf(`{"key":%q,"limits":[{"window":"24h","max":%d}]}`, r.keys[key], r.limit))
		var a proctest.Answer
		if err == nil {
			err = json.Unmarshal(out, &a)
		}
		switch {
		case err != nil || a.Outcome == "unknown":
			// A dead node may also have refused the request: Redis shows the count.
			r.unknown[key].Add(1)
		case status == http.StatusOK && a.Allowed:
			r.allowed[key].Add(1)
		}
		r.tries.Add(1)
	}
}

// isBeyond reports whether the gate's number of acquires has been allowed.
func (r *race) isBeyond() bool {
	allowed, unknown := r.sum()
	gate := r.gate.Load()
	return gate > 0 && allowed+unknown >= gate
}

func (r *race) sum() (allowed, unknown int64) {
	for i := range r.keys {
		allowed, unknown = allowed+r.allowed[i].Load(), unknown+r.unknown[i].Load()
	}
	return allowed, unknown
}

// until waits until this many acquires have been allowed.
func (r *race) until(allowed int64) {
	r.c.T.Helper()
	proctest.Until(r.c.T, "clients are let through",
		func() bool { a, u := r.sum(); return a+u >= allowed })
}

// finish waits until nothing more is allowed, and checks that each key was counted exactly as often
// as its limit, and that no more acquires were allowed.
func (r *race) finish() {
	t := r.c.T
	t.Helper()
	var held map[string]int64
	proctest.UntilNil(t, "the limits are used up", func() (err error) {
		held, err = r.c.Stored(r.keys)
		for _, key := range r.keys {
			if err == nil && held[key] < r.limit {
				err = fmt.Errorf("%s: %d", key, held[key])
			}
		}
		return err
	})
	tries := r.tries.Load() + int64(20*len(r.keys)) // keep trying after limits are used up
	proctest.Until(t, "clients go on", func() bool { return r.tries.Load() >= tries })
	r.stop()
	r.c.Settled()
	proctest.UntilNil(t, "all say the same", func() (err error) {
		held, err = r.c.Same(r.keys)
		return err
	})
	for i, key := range r.keys {
		if a, u := r.allowed[i].Load(), r.unknown[i].Load(); held[key] != r.limit || a > r.limit ||
			a+u < r.limit {
			t.Errorf("%s: %d let through, %d unknown, Redis holds %d; the limit is %d", key, a, u,
				held[key], r.limit)
		}
	}
	a, u := r.sum()
	t.Logf("%d keys, limit %d: %d tries, %d let through, %d unknown or not reached, want %d: "+
		"excess %d",
		len(r.keys), r.limit, r.tries.Load(), a, u, r.limit*int64(len(r.keys)),
		max(0, a-r.limit*int64(len(r.keys))))
}

func names(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// TestNoExcessDuringAJoinAndALeave makes a fourth node join and another leave while clients race
// for limits: of keys that move to the fourth node, of keys that leave the leaving one, and of keys
// that stay.
func TestNoExcessDuringAJoinAndALeave(t *testing.T) {
	c := start(t, 3)
	keys := names(12)
	const limit = 1000
	all := int64(limit * len(keys))
	r := c.acquire(12, limit, keys, 4*time.Millisecond, c.Bases())
	r.gate.Store(all * 3 / 5)
	r.until(all / 5)
	before := c.ownersOf(keys)
	c.Serve(3)
	r.to(c.Bases())
	r.until(all * 2 / 5)
	c.Settled()
	between := c.ownersOf(keys)
	r.until(all * 3 / 5)
	if a, u := r.sum(); a+u >= all {
		t.Fatal("the limits were used up before the node left: clients are too fast for this test")
	}
	r.gate.Store(0)
	c.Stop(1)
	r.to(c.Bases())
	r.finish()
	after := c.ownersOf(keys)
	moves := map[string]int{}
	for _, key := range keys {
		switch {
		case before[key] != between[key] && between[key] != after[key]:
			moves["twice"]++
		case before[key] != between[key]:
			moves["at the join"]++
		case between[key] != after[key]:
			moves["at the leave"]++
		default:
			moves["never"]++
		}
	}
	t.Logf("keys that changed hands: %v", moves)
	if moves["at the join"] == 0 || moves["at the leave"] == 0 || moves["never"] == 0 {
		t.Error("want some of each")
	}
}

// ownersOf returns the IDs of the owners of keys.
func (c *cluster) ownersOf(keys []string) map[string]string {
	c.T.Helper()
	v, err := c.Nodes[c.Running()[0]].Look()
	must.Succeed(c.T, err)
	place, owners := twotier.Placement{Partitions: c.Partitions}, map[string]string{}
	for _, key := range keys {
		owners[key] = v.Members[v.Owners[place.Of(nil, []byte(key))]].ID
	}
	return owners
}
