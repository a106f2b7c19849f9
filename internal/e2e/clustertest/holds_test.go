package clustertest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// holders are clients that hold and settle at any node.
type holders struct {
	t       *testing.T
	bases   atomic.Pointer[[]string]
	client  http.Client
	stopped atomic.Bool

	open     atomic.Int64 // holds that are certainly open
	most     atomic.Int64
	admitted atomic.Int64
	refused  atomic.Int64
	repeated atomic.Int64
	ended    atomic.Int64

	mu      sync.Mutex
	certain map[string]int64 // events by key
	unknown map[string]int64 // that may be counted as well
}

// The limit on open holds, how many events a hold counts of each key, and how long it lasts: an
// acquire whose answer is lost keeps its place for so long.
const (
	openHolds  = 3
	heldEvents = 8
	holdLasts  = "5s"
)

// post sends a request to a random node. The status is 0 if there is no answer.
func (h *holders) post(path, body string) (status int, answer []byte) {
	bases := *h.bases.Load()
	resp, err := h.client.Post(bases[rand.IntN(len(bases))]+path, "application/json",
		strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// run holds and settles until it is stopped.
func (h *holders) run(worker int) {
	own := fmt.Sprint("own-", worker)
	body := fmt.Sprintf(`{"checks":[{"key":"shared","n":%d,"limits":[{"concurrent":%d}]},
		{"key":%q,"n":%d,"limits":[{"window":"1h","max":1000000}]}],"hold":%q}`, heldEvents,
		openHolds, own, heldEvents, holdLasts)
	for !h.stopped.Load() {
		status, answer := h.post("/v1/acquire", body)
		var a struct {
			Allowed bool
			Hold    string
			Outcome string
		}
		switch err := json.Unmarshal(answer, &a); {
		case status == http.StatusOK && err != nil:
			h.t.Errorf("%s: %v", answer, err)
			return
		case status == http.StatusOK && !a.Allowed:
			h.refused.Add(1)
			time.Sleep(time.Millisecond)
		case status == http.StatusOK:
			h.admitted.Add(1)
			open := h.open.Add(1)
			for most := h.most.Load(); open > most && !h.most.CompareAndSwap(most, open); {
				most = h.most.Load()
			}
			h.settle(own, a.Hold)
		case status == 0 || a.Outcome == "unknown":
			h.count(h.unknown, own, heldEvents)
		}
	}
}

// settle settles a hold until the outcome is known.
func (h *holders) settle(own, id string) {
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	n := rand.Int64N(20)
	h.open.Add(-1)
	body := fmt.Sprintf(`{"hold":%q,"n":%d}`, id, n)
	for tries := 0; ; tries++ {
		status, answer := h.post("/v1/settle", body)
		if status == http.StatusOK {
			if strings.Contains(string(answer), "repeated") {
				h.repeated.Add(1)
				if tries == 0 {
					h.t.Errorf("it was settled before: %s", answer)
				}
			}
			h.count(h.certain, own, n)
			return
		}
		if status == http.StatusGone && tries > 0 { // it may have been settled before
			h.ended.Add(1)
			h.count(h.certain, own, min(n, heldEvents))
			h.count(h.unknown, own, max(n, heldEvents)-min(n, heldEvents))
			return
		}
		if status/100 == 4 && status != http.StatusTooManyRequests || tries > 5000 {
			h.t.Errorf("settle: %d %s", status, answer)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// count counts events of both keys of a worker.
func (h *holders) count(in map[string]int64, own string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in[own] += n
	in["shared"] += n
}

// TestHoldsThroughKills holds and settles through any node while nodes are killed and come back,
// and while their partitions are taken over. Every hold is settled once, each settlement is counted
// exactly, and never are more open than allowed.
func TestHoldsThroughKills(t *testing.T) {
	c := start(t, 3, "--ack", "redis")
	h := &holders{t: t, certain: map[string]int64{}, unknown: map[string]int64{},
		client: http.Client{Timeout: 10 * time.Second}}
	follow := func() {
		bases := c.Bases()
		h.bases.Store(&bases)
	}
	follow()
	var working sync.WaitGroup
	const workers = 6
	for i := range workers {
		working.Go(func() { h.run(i) })
	}
	accept := func(more int64) {
		t.Helper()
		for from, tries := h.admitted.Load(), 0; h.admitted.Load() < from+more; tries++ {
			if time.Sleep(5 * time.Millisecond); tries > 12_000 || t.Failed() {
				t.Fatalf("%d holds in a minute, want %d", h.admitted.Load()-from, more)
			}
		}
	}
	accept(100)
	for i := range 3 {
		c.Kill(i)
		follow()
		if accept(20); i > 0 {
			c.gone()
			accept(50)
		}
		c.Serve(i)
		follow()
		accept(20)
		c.Settled()
	}
	h.stopped.Store(true)
	working.Wait()
	// A holder counts its hold between two answers, so it may see fewer than are open.
	if most := h.most.Load(); most > openHolds || h.refused.Load() == 0 {
		t.Errorf("%d were open at once, want at most %d, and some refused", most, openHolds)
	}
	t.Logf("%d holds, %d refused, %d settlements repeated, %d too late, %v and at most %v more",
		h.admitted.Load(), h.refused.Load(), h.repeated.Load(), h.ended.Load(), h.certain,
		h.unknown)
	if ended := h.ended.Load(); ended > h.admitted.Load()/10 {
		t.Errorf("%d of %d could not be settled in time", ended, h.admitted.Load())
	}
	for key, want := range h.certain {
		for _, i := range c.Running() {
			n, err := c.eventsOf(i, "default", key)
			if most := want + h.unknown[key]; err != nil || n < want || n > most {
				t.Errorf("node %d has %d events of %s, want %d to %d, %v", i, n, key, want, most,
					err)
			}
		}
	}
}

// TestHoldsWhileRedisIsDown settles a hold from before and makes others while Redis is down. It
// comes back empty: counts, what is open, and that a hold is settled get there again, so that they
// are the same after all nodes were started again.
func TestHoldsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := startOver(t, server, 2)
	key := c.keyOf(0, "key=holds")
	body := fmt.Sprintf(`{"key":%q,"n":8,"limits":[{"window":"1h","max":100},{"concurrent":2}],
		"hold":"10m"}`, key)
	acquire := func(i int) (id string) {
		t.Helper()
		var a struct{ Hold string }
		must.Succeed(t, json.Unmarshal(c.Nodes[i].MustPost("/v1/acquire", body), &a))
		return a.Hold
	}
	settle := func(i int, id string, n int, want string) {
		t.Helper()
		got := c.Nodes[i].MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":%d}`, id, n))
		if string(got) != want {
			t.Errorf("settled by node %d with %d: %s, want %s", i, n, got, want)
		}
	}
	first, second := acquire(0), acquire(1)
	c.flushed()
	server.Kill()
	if third := acquire(1); third != "" {
		t.Error("three are open")
	}
	settle(1, first, 3, `{"settled":true}`)
	settle(0, first, 9, `{"settled":true,"repeated":true}`)
	third := acquire(0)
	server.Restart(t)
	c.seeRedis()
	c.flushed()
	c.startAgain(c.Kill, 2)
	settle(1, first, 9, `{"settled":true,"repeated":true}`)
	if fourth := acquire(0); fourth != "" {
		t.Error("three are open after the restart")
	}
	settle(0, second, 0, `{"settled":true}`)
	settle(1, third, 20, `{"settled":true}`)
	c.hasEvents("default", key, 23, "at the end")
}

// releasing acquires 5 events of a key and of "all" at node i, which are released after some
// seconds unless they are settled.
func (c *cluster) releasing(i int, key, lasts string) (id string) {
	c.T.Helper()
	var a struct{ Hold string }
	must.Succeed(c.T, json.Unmarshal(c.Nodes[i].MustPost("/v1/acquire", fmt.Sprintf(`{"checks":[
		{"key":%q,"n":5,"limits":[{"window":"1h","max":9}]},
		{"key":"all","n":5,"limits":[{"window":"1h","max":99},{"concurrent":9}]}],
		"hold":%q,"on_expiry":"release"}`, key, lasts)), &a))
	if a.Hold == "" {
		c.T.Fatal("it is refused")
	}
	return a.Hold
}

// deadlines returns how many deadlines of holds Redis has.
func deadlines(t *testing.T, server *redistest.Server) (n int64) {
	t.Helper()
	client := server.Client(t)
	keys, err := client.Keys(t.Context(), "tt:due:*").Result()
	must.Succeed(t, err)
	for _, key := range keys {
		some, err := client.HLen(t.Context(), key).Result()
		must.Succeed(t, err)
		n += some
	}
	return n
}

// released waits until each of the running nodes has those counts.
func (c *cluster) released(counts map[string]int64) {
	c.T.Helper()
	proctest.UntilNil(c.T, "the holds are released", func() error {
		for key, want := range counts {
			for _, i := range c.Running() {
				if n, err := c.eventsOf(i, "default", key); err != nil || n != want {
					return fmt.Errorf("node %d has %d events of %s, want %d, %v", i, n, key, want,
						err)
				}
			}
		}
		return nil
	})
}

// TestHoldsAreReleasedThroughCrashes: the node that made a hold is killed, Redis goes down, and in
// the end all nodes are killed. What nobody has settled is released all the same, once.
func TestHoldsAreReleasedThroughCrashes(t *testing.T) {
	takesLong(t)
	t.Parallel()
	server := redistest.Start(t, redistest.AOF())
	c := startOver(t, server, 3, "--ack", "redis")
	written := func(n int64) {
		t.Helper()
		proctest.Until(t, "the deadlines are in Redis", func() bool {
			return deadlines(t, server) == n
		})
	}
	acknowledged := func(n int64) {
		t.Helper()
		if got := deadlines(t, server); got != n {
			t.Errorf("%d acknowledged deadlines are in Redis, want %d", got, n)
		}
	}
	c.releasing(0, "a", "5s")
	settled := c.releasing(0, "b", "1m")
	c.releasing(1, "c", "5s")
	acknowledged(3)
	c.Kill(0)
	c.gone()
	c.Nodes[2].MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":7}`, settled))
	c.released(map[string]int64{"a": 0, "b": 7, "c": 0, "all": 7})
	written(0)

	c.releasing(1, "d", "2s")
	server.Kill()
	c.released(map[string]int64{"d": 0, "all": 7})
	server.Restart(t)
	c.seeRedis()
	written(0) // d's, which may have been there before
	c.releasing(1, "e", "8s")
	acknowledged(1)
	c.flushed()
	c.startAgain(c.Kill, 3)
	c.released(map[string]int64{"a": 0, "b": 7, "c": 0, "d": 0, "e": 0, "all": 7})
	written(0)
}
