package clustertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// The configurations of nodes before and after a change. The change gives the ladder of the default
// namespace other and coarser levels and one more bucket, and fewer events keep their millisecond;
// it adds a namespace whose ladder differs from the one by which its keys were counted before; and
// it changes other settings.
const (
	plain  = "namespaces: {default: {}}"
	richer = "{flush_interval: 100ms, request_timeout: 4s, namespaces: {" +
		"default: {ladder: [250ms x 40, 1s x 60, 1m x 60, 15m x 97, 1h x 48], exact: 20, " +
		"max_keys: 900000}, burst: {ladder: [200ms x 60, 1s x 60, 1m x 60], exact: 7, " +
		"on_cold: deny}}}"
)

// burst is traffic in a namespace that only some nodes have: acquires of a few keys with two
// limits. No window may ever hold more than its limit.
type burst struct {
	t     *testing.T
	http  *http.Client
	bases atomic.Pointer[[]string]
	quit  context.CancelFunc
	done  sync.WaitGroup

	mu       sync.Mutex
	admitted map[string][]int64 // when, by key
	unknown  map[string]int64
}

const (
	burstKeys   = 6
	shortMax    = 4
	longMax     = 15
	shortWindow = 5_000
	longWindow  = 40_000
)

func (c *cluster) burst() *burst {
	ctx, cancel := context.WithCancel(context.Background())
	b := &burst{t: c.T, http: proctest.NewClient(), quit: cancel, admitted: map[string][]int64{},
		unknown: map[string]int64{}}
	b.to(c.Bases()...)
	c.T.Cleanup(b.stop)
	for range 3 {
		b.done.Go(func() {
			for ctx.Err() == nil {
				bases := *b.bases.Load()
				b.acquire(bases[rand.N(len(bases))], fmt.Sprint("burst-", rand.N(burstKeys)))
				time.Sleep(rand.N(30 * time.Millisecond)) // most are refused
			}
		})
	}
	return b
}

// to sends the traffic to these nodes from now on.
func (b *burst) to(bases ...string) { b.bases.Store(&bases) }

func (b *burst) stop() {
	b.quit()
	b.done.Wait()
	b.http.CloseIdleConnections()
}

// acquire asks once, and records the time of an admission.
func (b *burst) acquire(base, key string) (allowed bool) {
	res, err := b.http.Post(base+"/v1/acquire", "application/json", strings.NewReader(fmt.Sprintf(
		`{"ns":"burst","key":%q,"ack":"redis","limits":[{"window":"%dms","max":%d},`+
			`{"window":"%dms","max":%d}]}`, key, shortWindow, shortMax, longWindow, longMax)))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.unknown[key]++
		return false
	}
	defer res.Body.Close()
	var answer struct {
		Allowed bool
		TS      int64
		Outcome string
	}
	err = json.NewDecoder(res.Body).Decode(&answer)
	switch {
	case err != nil || answer.Outcome == "unknown":
		b.unknown[key]++
	case res.StatusCode == http.StatusOK && answer.Allowed:
		b.admitted[key] = append(b.admitted[key], answer.TS)
	}
	return answer.Allowed
}

// pass waits until that many more events were admitted.
func (b *burst) pass(n int) {
	b.t.Helper()
	want := b.total() + n
	proctest.Until(b.t, "acquires are admitted", func() bool { return b.total() >= want })
}

func (b *burst) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.admitted {
		n += len(at)
	}
	return n
}

// withinLimits checks that no window holds more than a limit allows.
func (b *burst) withinLimits() {
	b.t.Helper()
	for key, at := range b.admitted {
		slices.Sort(at)
		for _, limit := range []struct {
			window int64
			most   int
		}{{shortWindow, shortMax}, {longWindow, longMax}} {
			for i := limit.most; i < len(at); i++ {
				if d := at[i] - at[i-limit.most]; d < limit.window {
					b.t.Errorf("%s: %d were admitted within %d ms, at most %d may be in %d ms", key,
						limit.most+1, d, limit.most, limit.window)
				}
			}
		}
	}
}

// counted compares every node's counts with the admitted events.
func (b *burst) counted(c *cluster) {
	b.t.Helper()
	for key, at := range b.admitted {
		for _, i := range c.Running() {
			proctest.UntilNil(b.t, "the nodes count what was admitted", func() error {
				a, err := c.Nodes[i].TryCount("ns=burst&window=1h&key=" + key)
				if err != nil {
					return err
				}
				n, least := a.Counts[0].Max, int64(len(at))
				if n < least || n > least+b.unknown[key] {
					return fmt.Errorf("%s: node %d counts %d, admitted were %d and perhaps %d more",
						key, i, n, least, b.unknown[key])
				}
				return nil
			})
		}
	}
}

// reconfigure restarts one node after the other with another configuration, under traffic.
func (c *cluster) reconfigure(tr *proctest.Traffic, b *burst, file string, numbers ...int) {
	c.T.Helper()
	c.Args = append(slices.Clone(c.Args[:len(c.Args)-1]), file)
	for _, i := range numbers {
		rest := slices.DeleteFunc(c.Running(), func(j int) bool { return i == j })
		b.to(c.Bases(rest...)...)
		c.Stop(i)
		tr.Accept(100)
		c.Serve(i)
		tr.To(c.Bases()...)
		b.to(c.Bases()...)
		tr.Accept(100)
		c.Settled()
		b.pass(3)
	}
}

// startPlain starts three nodes with a configuration file, and traffic.
func startPlain(t *testing.T) (c *cluster, tr *proctest.Traffic, b *burst, before, after string) {
	before, after = configured(t, plain), configured(t, richer)
	c = start(t, 3, "--config", before)
	return c, c.Traffic(), c.burst(), before, after
}

// bucketOf returns the width, in milliseconds, of the buckets from which node i reads a window.
func (c *cluster) bucketOf(i int, ns, key, window string) (ms int64) {
	c.T.Helper()
	a, err := c.Nodes[i].TryCount("ns=" + ns + "&key=" + key + "&window=" + window)
	must.Succeed(c.T, err)
	return a.Counts[0].Bucket
}

// reads waits until every node reads a window from buckets of this width.
func (c *cluster) reads(ns, key, window string, ms int64) {
	c.T.Helper()
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, "windows are read from other buckets", func() error {
			if got := c.bucketOf(i, ns, key, window); got != ms {
				return fmt.Errorf("node %d reads %s of %s from buckets of %d ms, want %d", i,
					window, key, got, ms)
			}
			return nil
		})
	}
}

// TestLaddersChangeNodeByNode changes namespaces, ladders and other settings of one node after the
// other, and then back, under traffic.
func TestLaddersChangeNodeByNode(t *testing.T) {
	takesLong(t)
	c, tr, b, before, after := startPlain(t)
	tr.Accept(200)
	c.reads("default", proctest.HotKey, "5s", 100)
	c.reconfigure(tr, b, after, 0, 1, 2)
	c.reads("default", proctest.HotKey, "5s", 250)
	c.Nodes[0].Get("/v1/count?window=30h&key=" + proctest.HotKey)
	b.pass(20)
	c.reconfigure(tr, b, before, 1, 0, 2)
	c.reads("default", proctest.HotKey, "5s", 100)
	b.pass(20)
	b.stop()
	tr.Accept(200)
	tr.Stop()
	orderly(t, tr, c.Settle("9 other ladders", 0))
	b.withinLimits()
	b.counted(c)
}

// TestLaddersChangeHalfWay changes one node, asks old and new nodes first about uncounted keys,
// kills the new one, and rolls back. No acknowledged event is lost.
func TestLaddersChangeHalfWay(t *testing.T) {
	before, after := configured(t, plain), configured(t, richer)
	c := start(t, 3, "--config", before)
	tr := &proctest.Traffic{T: t, Ledger: c.Ledger, Retry: true, Storing: true}
	tr.To(c.Bases()...).Start()
	b := c.burst()
	tr.Accept(200)
	c.reconfigure(tr, b, after, 1)
	b.stop()
	for i, first := range []int{0, 1, 2, 1} {
		key, began := fmt.Sprint("first-", i), time.Now()
		for n, node := range []int{first, (first + 1) % 3, (first + 2) % 3, first, 1, 0, 2} {
			allowed := b.acquire(c.Nodes[node].Base, key)
			if n >= shortMax && time.Since(began) >= shortWindow*time.Millisecond {
				continue // on a busy machine, the first ones may have left the window
			}
			if allowed != (n < shortMax) {
				t.Errorf("%s: acquire %d, of node %d: allowed %v", key, n, node, allowed)
			}
		}
	}
	c.Kill(1)
	tr.To(c.Bases()...)
	tr.Accept(200)
	c.Args = append(slices.Clone(c.Args[:len(c.Args)-1]), before)
	c.Serve(1)
	tr.To(c.Bases()...)
	tr.Accept(200)
	tr.Stop()
	c.Settle("10 a node with other ladders is killed", 0)
	b.counted(c)
}

// TestNodesThatCannotJoinLeaveNoTrace starts nodes with other namespaces, ladders and rules that
// can't join. Redis stays unchanged, and nodes with the old configuration start.
func TestNodesThatCannotJoinLeaveNoTrace(t *testing.T) {
	before, after := configured(t, plain), configured(t, richer)
	rules := configured(t, "rules: [{name: login, limits: [3/1m]}]")
	c := start(t, 2, "--config", before)
	c.Barrier()
	trace := c.trace()
	last := c.Args
	for why, args := range map[string][]string{
		"refused": {"--config", after, "--partitions", "11"},
		"tags": {"--config", configured(t, strings.Replace(richer, "burst: {",
			"burst: {hash_tags: true, ", 1))},
		"twin":         {"--config", after, "--node", "n0"},
		"not a secret": {"--config", after, "--cluster-secret", "another secret of the nodes"},
	} {
		c.Args = append(slices.Clone(last[:len(last)-2]), append(args, "--rules", rules)...)
		p, err := c.Program.TryServe(t, c.Place(3).Options, c.Command(3)...)
		if err == nil {
			t.Errorf("%s: it started", why)
		}
		p.Kill()
		if now := c.trace(); now != trace {
			t.Errorf("%s: Redis had\n%s\nand has\n%s", why, trace, now)
		}
	}
	c.Args = last
	c.Stop(1)
	c.Serve(1)
	c.Settled()
}

// trace returns the data in Redis apart from counts.
func (c *cluster) trace() string {
	c.T.Helper()
	ctx := context.Background()
	meta, err := c.Direct.HGetAll(ctx, "tt:meta").Result()
	rules, err2 := c.Direct.HGetAll(ctx, "tt:rules").Result()
	nodes, err3 := c.Direct.HKeys(ctx, "tt:nodes").Result()
	must.Succeed(c.T, errors.Join(err, err2, err3))
	slices.Sort(nodes)
	return fmt.Sprintf("%v %v %v", meta, rules, nodes)
}
