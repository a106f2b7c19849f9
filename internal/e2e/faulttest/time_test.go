package faulttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// steppingStore is a store whose clock jumps.
type steppingStore struct {
	mu   sync.Mutex
	now  time.Time
	asks int
}

func (s *steppingStore) ClockAhead(
	_ context.Context, local func() time.Time,
) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks++
	return s.now.Sub(local()), nil
}

func (s *steppingStore) Health() cluster.StoreHealth { return cluster.StoreHealth{Up: true} }

func (s *steppingStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asks
}

// TestFault18ClockSteps makes the store's clock jump by minutes in both directions and by days, and
// the machine's wall clock too. The node keeps counting by the time that it believed: until a jump
// of minutes is confirmed, and forever after a jump of days. Time is driven: nothing here depends
// on how fast the test runs.
func TestFault18ClockSteps(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var mono time.Duration
	wall := time.UnixMilli(1_763_000_000_000)
	store := &steppingStore{now: wall}
	counts := embedded.New(embedded.Options{})
	clock := storeclock.New(
		func() time.Time { mu.Lock(); defer mu.Unlock(); return wall },
		func() time.Duration { mu.Lock(); defer mu.Unlock(); return mono })
	place := twotier.Placement{Partitions: 1}
	counter, err := syncer.New(syncer.Options{Store: counts, Now: clock.Now, Placement: place,
		FlushInterval: 5 * time.Millisecond})
	must.Succeed(t, err)
	n, err := node.New(node.Options{ID: "n", Counter: counter, Store: store, Clock: clock,
		Placement: twotier.Placement{Partitions: 1}, ClockInterval: time.Millisecond})
	must.Succeed(t, err)
	must.Succeed(t, n.Open(t.Context(), ""))
	// All clocks move at once: a measurement in between would see a step. The locks are taken in
	// the order in which a measurement takes them.
	pass := func(d time.Duration) {
		store.mu.Lock()
		defer store.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		mono += d
		wall = wall.Add(d)
		store.now = store.now.Add(d)
	}
	measured := func() {
		before := store.asked()
		proctest.Until(t, "the node asks for the time",
			func() bool { return store.asked() > before+1 })
	}
	last, total := int64(0), int64(0)
	unfollowed := time.Duration(0) // of the steps of the store's clock
	add := func(what string) {
		t.Helper()
		key := fmt.Sprint("k", total)
		at := clock.Now()
		if at < last {
			t.Fatalf("%s: the clock went back from %d to %d", what, last, at)
		}
		last = at
		op := twotier.Op{Kind: twotier.Add, Checks: []twotier.Check{{Key: []byte(key), N: 1,
			Limits: []twotier.Limit{{Window: 1000, Max: 9}}}}}
		var res twotier.Result
		if err := n.Do(t.Context(), &op, &res); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		total++
		must.Succeed(t, counter.Flush(t.Context()))
		_, skew := clock.Offset()
		if doubted := unfollowed != 0 || skew > time.Second; doubted && !res.Degraded {
			t.Errorf("%s: %v of the store's steps are not followed, the skew is %v, and the "+
				"answer is not degraded", what, unfollowed, skew)
		}
		store.mu.Lock()
		believed := store.now.Add(-unfollowed).UnixMilli()
		store.mu.Unlock()
		buckets := counts.Get(0, nil, []byte(key))
		if len(buckets) != 1 {
			t.Fatalf("%s: %d buckets", what, len(buckets))
		}
		if b := buckets[0]; b.Width != 1 || b.Start < believed ||
			b.Start > believed+skew.Milliseconds()+2 {
			t.Errorf("%s: counted in %+v, want a millisecond from %d on (skew %v)", what, b,
				believed, skew)
		}
	}
	step := func(by time.Duration) {
		store.mu.Lock()
		store.now = store.now.Add(by)
		store.mu.Unlock()
		unfollowed += by
		mu.Lock()
		wall = wall.Add(-by) // the machine's clock doesn't matter
		mu.Unlock()
		measured()
		for range 5 {
			pass(700 * time.Millisecond)
			add(fmt.Sprint("just after ", by))
		}
	}
	settle := func() {
		for range 3 {
			pass(31 * time.Second)
			measured()
		}
	}
	for _, by := range []time.Duration{0, 3 * time.Minute, -2 * time.Minute, 7 * time.Minute,
		-30 * time.Second, -5 * time.Minute} {
		step(by)
		settle()
		unfollowed = 0
		_, skewed := clock.Offset()
		for range 20 {
			pass(700 * time.Millisecond)
			add(fmt.Sprint("after ", by))
		}
		measured()
		if _, skew := clock.Offset(); skewed > 14*time.Second && skew > skewed-6*time.Second {
			t.Errorf("after %v: the skew was %v and is %v: it does not shrink", by, skewed, skew)
		}
	}
	pass(20 * time.Minute)
	measured()
	add("at last")
	if _, skew := clock.Offset(); skew != 0 {
		t.Errorf("the skew is %v at last", skew)
	}
	for _, by := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		step(by)
		settle()
		add(fmt.Sprint("long after ", by))
	}
	if doubt := n.Cluster().ClockDoubt; doubt != string(storeclock.DoubtFar) {
		t.Errorf("the doubt is %q after steps that are too far to follow", doubt)
	}
	step(24 * time.Hour) // back where it was
	if doubt := n.Cluster().ClockDoubt; unfollowed != 0 || doubt != "" {
		t.Errorf("the doubt is %q with the store's clock set right", doubt)
	}
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Patience)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// doubting waits until a node reports that its time is in doubt, or no longer in doubt.
func doubting(n *proctest.Process, want bool) {
	n.T.Helper()
	proctest.Until(n.T, fmt.Sprint("the time is in doubt: ", want), func() bool {
		status, body := n.Ready()
		return status == 200 && strings.Contains(body, "clock") == want &&
			(n.Metric("twotier_clock_doubted", "") == 1) == want
	})
}

// theLimit returns an acquire that uses up its whole limit. Its event has the machine's time.
func theLimit(key string) string {
	return fmt.Sprintf(
		`{"key":%q,"n":3,"ts":%d,"limits":[{"window":"1m","max":3},{"window":"24h","max":3}]}`, key,
		time.Now().UnixMilli())
}

// inTime checks that the events of a key in Redis are counted at the present time, to the
// millisecond. The only buckets are marks: they have no events, and follow an event ahead of the
// node's time.
func (b *bed) inTime(key string) {
	b.T.Helper()
	flat, err := b.Direct.HGetAll(context.Background(), b.Hash(key)).Result()
	if err != nil || len(flat) == 0 {
		b.T.Fatalf("%s: %v, %v", key, flat, err)
	}
	delete(flat, proctest.VersionField)
	marks := map[int64]bool{}
	var buckets []proctest.Cell
	for field, value := range flat {
		cells, err := proctest.Cells(field, value)
		must.Succeed(b.T, err)
		for _, c := range cells {
			if c.Width > 1 {
				buckets = append(buckets, c)
				continue
			}
			if off := time.Since(time.UnixMilli(c.Start)); off < -time.Minute || off > time.Minute {
				b.T.Errorf("%s: an event is %v old", key, off)
			}
			marks[leaparray.Default().BucketAfter(c.Start).Start] = true
		}
	}
	for _, c := range buckets {
		if c.N != 0 || !marks[c.Start] {
			b.T.Errorf("%s: %+v of %q, want the events by millisecond", key, c, flat)
		}
	}
}

// TestFault25TimeLies sets Redis's clock wrong by a day for some seconds. No limit is reset, no
// window is stretched, events counted meanwhile are in the right buckets, and answers are marked.
func TestFault25TimeLies(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 24 * time.Hour,
		"back": -24 * time.Hour} {
		for _, mode := range []string{"two-tier", "redis"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				b := newBed(t, nil, "--mode", mode)
				if out := b.node.MustPost("/v1/acquire",
					theLimit("before")); !strings.Contains(string(out), `"allowed":true`) {
					t.Fatalf("%s", out)
				}
				b.proxy.ShiftTime(by)
				began := time.Now()
				doubting(b.node, true)
				t.Logf("noticed after %v", time.Since(began).Round(time.Millisecond))
				for key, want := range map[string]string{"before": `"allowed":false`,
					"meanwhile": `"allowed":true`} {
					for range 2 {
						out := string(b.node.MustPost("/v1/acquire", theLimit(key)))
						if !strings.Contains(out, want) ||
							!strings.Contains(out, `"degraded":true`) {
							t.Errorf("%s: %s, want %s, degraded", key, out, want)
						}
						want = `"allowed":false`
					}
				}
				b.node.MustPost("/v1/acquire",
					`{"key":"now","ack":"redis","limits":[{"window":"1m","max":5}]}`)
				b.inTime("now")
				b.proxy.ShiftTime(0)
				doubting(b.node, false)
				for _, key := range []string{"before", "meanwhile"} {
					out := string(b.node.MustPost("/v1/acquire", theLimit(key)))
					if !strings.Contains(out, `"allowed":false`) ||
						strings.Contains(out, `"degraded":true`) {
						t.Errorf("%s: %s, want it refused, not degraded", key, out)
					}
				}
				b.node.Flushed()
				b.inTime("meanwhile")
				if log := b.node.Log.String(); strings.Count(log, "the time is in doubt") != 1 {
					t.Errorf("the log does not say once that the time is in doubt:\n%s", log)
				}
			})
		}
	}
}

// TestFault25StartsDuringALie starts a node while Redis's clock is a day ahead. Once the clock is
// right, the node marks its answers for a minute; then it counts at the right time by itself.
func TestFault25StartsDuringALie(t *testing.T) {
	takesLong(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	proxy.ShiftTime(24 * time.Hour)
	b := bedBehind(t, proxy, server, "--redis-timeout", "5s")
	// On a busy machine the node may be ready before it has read Redis's clock. It reads it every
	// second until it has.
	proctest.Until(t, "the node has read the wrong time", func() bool {
		return b.node.Metric("twotier_clock_offset_seconds", "") > 12*3600
	})
	doubting(b.node, false)
	b.proxy.ShiftTime(0)
	doubting(b.node, true)
	if out := string(b.node.MustPost("/v1/add", `{"key":"wrong"}`)); !strings.Contains(out,
		`"degraded":true`) {
		t.Errorf("while the time is in doubt: %s", out)
	}
	time.Sleep(time.Minute) // the clock is not believed any sooner
	doubting(b.node, false)
	b.node.MustPost("/v1/add", `{"key":"right","ack":"redis"}`)
	b.inTime("right")
	if out := string(b.node.MustPost("/v1/acquire", theLimit("right"))); !strings.Contains(out,
		`"allowed":false`) {
		t.Errorf("after one of three: %s", out)
	}
}

// TestFault25TimeLiesToOneOfThree gives one node of a cluster a wrong time. It marks its answers,
// the others don't, and all count in the same buckets.
func TestFault25TimeLiesToOneOfThree(t *testing.T) {
	takesLong(t)
	t.Parallel()
	server := redistest.Start(t)
	b := &bed{Cluster: proctest.NewCluster(t, program, server, proctest.Loopback(),
		"--redis-timeout", "5s", "--request-timeout", "20s")}
	proxy := faultproxy.New(t, server.Addr())
	for i := range 3 {
		b.URL = server.URL()
		if i == 0 {
			b.URL = "redis://" + proxy.Addr()
		}
		b.Serve(i)
	}
	b.Settled()
	nodes := b.Nodes
	proxy.ShiftTime(24 * time.Hour)
	doubting(nodes[0], true)
	marked := map[string]int{}
	const keys = 60
	for i := range keys {
		for k := range len(nodes) {
			out := string(nodes[k].MustPost("/v1/acquire", theLimit(fmt.Sprint("k", i))))
			if want := fmt.Sprintf(`"allowed":%v`, k == 0); !strings.Contains(out, want) {
				t.Fatalf("key %d by node %d: %s, want %s", i, k, out, want)
			}
			if k == 1 {
				marked[fmt.Sprint(strings.Contains(out, `"degraded":true`))]++
			}
		}
	}
	if marked["true"] == 0 || marked["false"] == 0 {
		t.Errorf("marked as degraded: %v; want those of one owner", marked)
	}
	t.Logf("of %d answers, %d are of the node in doubt, and marked", keys, marked["true"])
	if n := nodes[1].Metric("twotier_clock_doubted", "") + nodes[2].Metric("twotier_clock_doubted",
		""); n != 0 {
		t.Error("a node that hears the right time is in doubt")
	}
	for _, n := range nodes {
		n.Flushed()
	}
	for i := range keys {
		b.inTime(fmt.Sprint("k", i))
	}
	proxy.ShiftTime(0)
	doubting(nodes[0], false)
}
