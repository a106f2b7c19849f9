package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// small sets little memory and few partitions.
var small = [...]string{"--partitions", "8", "--max-memory", "1MiB"}

// smallMemory is the --max-memory of small. The last chunk of each partition may exceed it, up to
// twice as much in all.
const smallMemory = 1 << 20

// flood adds one event to each of n new keys, in batches, and returns how many were refused, and
// the last refusal.
func (b *bed) flood(name string, n int) (turnedAway int64, why string) {
	b.T.Helper()
	const most = 500
	for at := 0; at < n; at += most {
		var keys, ops []string
		for i := at; i < min(n, at+most); i++ {
			key := fmt.Sprint(name, "-", i)
			keys, ops = append(keys, key), append(ops, fmt.Sprintf(`{"op":"add","key":%q}`, key))
			b.Ledger.Sending(key, 1)
		}
		var answers struct{ Results []proctest.Answer }
		err := b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &answers)
		if err != nil || len(answers.Results) != len(keys) {
			b.T.Fatalf("%v, %d results", err, len(answers.Results))
		}
		for i, a := range answers.Results {
			switch {
			case a.Error == nil:
				b.Ledger.Note(keys[i], 1, proctest.Acked)
			case a.Error.Outcome == "unknown":
				b.Ledger.Note(keys[i], 1, proctest.Unknown)
			default:
				b.Ledger.Note(keys[i], 1, proctest.Refused)
				turnedAway++
				why = fmt.Sprint(a.Error.Status, " ", a.Error.Detail)
			}
		}
	}
	return turnedAway, why
}

func (b *bed) bounded() {
	b.T.Helper()
	if n := b.node.Metric("twotier_memory_bytes", ""); n > 2*smallMemory {
		b.T.Errorf("%d bytes for counts, --max-memory is %d", n, smallMemory)
	}
}

func TestFault19FloodOfNewKeys(t *testing.T) {
	takesLong(t)
	b := newBed(t, nil, small[:]...)
	tr := b.Traffic()
	tr.Accept(200)
	for wave := range 4 {
		// A machine that stands still for a moment makes the node refuse some keys: soon there must
		// be room for the same number of new ones.
		left := int64(4000)
		proctest.Until(t, "there is room for new keys", func() bool {
			n, why := b.flood(fmt.Sprint("flood-", wave, "-", left), int(left))
			if n > 0 {
				t.Logf("%d of %d refused: %s", n, left, why)
			}
			left = n
			b.bounded()
			return left == 0
		})
	}
	// Idle keys make room for new ones.
	proctest.Until(t, "keys are evicted", func() bool {
		b.flood(fmt.Sprint("more-", rand.Uint64()), 50)
		return b.node.Metric("twotier_evictions_total", "") > 0
	})
	tr.Accept(200)
	tr.Stop()
	b.bounded()
	b.settle("19 a flood of new keys", 0)
	b.bounded()
}

func TestFault19FloodWithRedisDown(t *testing.T) {
	b := newBed(t, nil, small[:]...)
	tr := b.Traffic()
	tr.Accept(600)
	b.Barrier()
	b.redis.Kill()
	b.degraded()
	turnedAway, why := b.flood("flood", 16_000)
	if turnedAway == 0 || !strings.HasPrefix(why, "429") {
		t.Errorf("%d refused: %s, want some with 429", turnedAway, why)
	}
	status, body, err := b.node.Post("/v1/add", fmt.Sprintf(`{"key":"one-more-%d"}`, rand.Uint64()))
	t.Logf("one more new key: %d %s %v", status, body, err)
	b.bounded()
	before, _, _ := b.Ledger.Totals()
	tr.Accept(300)
	if o := tr.Add(proctest.HotKey, 1, false); o != proctest.Acked {
		t.Errorf("a key in memory is refused: %d", o)
	}
	if after, _, _ := b.Ledger.Totals(); after < before+300 {
		t.Error("keys in memory don't count")
	}
	b.redis.Restart(t)
	tr.Accept(200)
	tr.Stop()
	b.settle("19 a flood with Redis down", 0)
	b.bounded()
}

func TestFault19HotKey(t *testing.T) {
	b := newBed(t, nil)
	tr := (&proctest.Traffic{T: t, Ledger: b.Ledger}).To(b.node.Base).Open()
	for i := range 8 {
		tr.Go(func() {
			for j := range 250 {
				tr.Add(proctest.HotKey, 1+rand.Int64N(1000), i == 0 && j%10 == 0)
			}
		})
	}
	tr.Stop()
	b.settle("19 one hot key", 0)
}

// TestAttackKeysThatNoServerTakes sends twenty requests under each invalid key through the client's
// gate, which has a limit of three and fails open.
func TestAttackKeysThatNoServerTakes(t *testing.T) {
	t.Parallel()
	// The gate passes requests that no server answers in time, so the timeout is long.
	node := program.Serve(t, proctest.Options{}, "--request-timeout",
		proctest.Patience.String())
	c, err := client.New(client.Options{Addresses: []string{node.Listen},
		Timeout: proctest.Patience})
	must.Succeed(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Limits: []client.Limit{{Window: time.Hour, Max: 3}}, Outage: client.FailOpen,
		Wait: proctest.Patience,
	})
	must.Succeed(t, err)
	for _, key := range []string{"plain", "", strings.Repeat("k", 257), "\xff", "a\tb",
		client.SafeKey("\xff")} {
		passed := 0
		h := gate.Handler(func(r *http.Request) (string, bool) {
			return r.Header.Get("User"), true
		},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
		for range 20 {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			r.Header.Set("User", key)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		t.Logf("key %.8q: %d of 20 passed", key, passed)
		if passed != 3 {
			t.Errorf("key %.20q: %d of 20 passed, the limit is 3", key, passed)
		}
	}
}

// TestOverloadSwitchesNoLimitsOff makes a crowd of 1,500 ask a small node for more than it can
// decide, through a gate that fails open. Whatever the outcome of a request, it passes only by a
// decision.
func TestOverloadSwitchesNoLimitsOff(t *testing.T) {
	t.Parallel()
	node := program.Serve(t, proctest.Options{}, "--max-memory", "4MiB", "--partitions", "8")
	c, err := client.New(client.Options{Addresses: []string{node.Listen},
		Timeout: proctest.Patience, AttemptTimeout: 750 * time.Millisecond})
	must.Succeed(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	must.Succeed(t, c.Refresh(t.Context()))
	var limits []client.Limit
	for i := range 16 {
		window := time.Duration(i+1) * time.Minute
		limits = append(limits, client.Limit{Window: window, Max: 1 << 30})
	}
	var checks []client.Check
	for i := range 8 {
		checks = append(checks, client.Check{Key: fmt.Sprint("key-", i)})
	}
	gate, err := client.NewGate(client.GateOptions{Client: c, Limits: limits,
		Outage: client.FailOpen})
	must.Succeed(t, err)
	var decided, refused, undecided atomic.Int64
	var crowd sync.WaitGroup
	for range 1500 {
		crowd.Go(func() {
			for range 10 {
				switch d := gate.Decide(t.Context(), checks); {
				case !d.Passes():
					refused.Add(1)
				case d.Policy == "":
					undecided.Add(1)
				default:
					decided.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	if n := undecided.Load(); n > 0 {
		t.Errorf("%d of 15,000 passed without a decision", n)
	}
	t.Logf("%d passed by a decision, %d were refused", decided.Load(), refused.Load())
}
