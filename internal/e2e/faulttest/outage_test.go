package faulttest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
)

func TestFault4RedisGoneAndBack(t *testing.T) {
	b := newBed(t, []redistest.Option{redistest.AOF()})
	tr := b.Traffic()
	tr.Accept(300)
	for range 2 {
		b.redis.Kill()
		b.degraded()
		// Down for a while: several retries with back-off, and many more counts.
		noticed := b.moreFail()
		for range 3 {
			noticed()
		}
		tr.Accept(400)
		b.redis.Restart(t)
		tr.Accept(300)
		proctest.Until(t, "the node is up again",
			func() bool { return b.node.Metric("twotier_redis_up", "") == 1 })
	}
	tr.Stop()
	b.settle("4 Redis gone and back", 0)
}

func TestFault5RedisBackEmpty(t *testing.T) {
	t.Run("FLUSHALL", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.Traffic()
		for range 3 {
			tr.Accept(300)
			b.do("FLUSHALL")
		}
		tr.Accept(100)
		tr.Stop()
		b.settle("5 FLUSHALL", 0)
		if n := b.node.Metric("twotier_losses_total", ""); n == 0 {
			t.Error("no loss was noticed")
		}
		// Idle partitions notice without traffic.
		b.do("FLUSHALL")
		b.settle("5 FLUSHALL while idle", 0)
		b.meta()
	})
	t.Run("Restart", func(t *testing.T) {
		b := newBed(t, nil)
		tr := b.Traffic()
		tr.Accept(600)
		b.redis.Kill()
		b.degraded()
		tr.Accept(200)
		b.redis.Restart(t)
		tr.Accept(200)
		tr.Stop()
		b.settle("5 restart without persistence", 0)
		b.meta()
	})
	t.Run("RepliesLostToo", func(t *testing.T) {
		b := newBed(t, nil, "--partitions", "61")
		tr := b.Traffic()
		tr.Accept(300)
		for range 3 {
			b.proxy.SwallowReplies(true)
			tr.Accept(50)
			b.do("FLUSHALL")
			b.proxy.Pass()
			tr.Accept(50)
		}
		tr.Stop()
		b.settle("5 FLUSHALL while replies are lost", 0)
	})
}

// meta checks that tt:meta is there again.
func (b *bed) meta() {
	b.T.Helper()
	proctest.Until(b.T, "tt:meta is back", func() bool {
		n, err := b.redis.Do("EXISTS", "tt:meta").Int()
		return err == nil && n == 1
	})
}

func TestFault6ScriptFlush(t *testing.T) {
	b := newBed(t, nil, "--redis-timeout", "1m") // a late batch has not failed
	tr := b.Traffic()
	for range 60 {
		tr.Pass(10)
		b.do("SCRIPT", "FLUSH")
	}
	tr.Stop()
	b.settle("6 SCRIPT FLUSH", 0)
	if n := b.failing(); n != 0 {
		t.Errorf("%d batches did not get through at once", n)
	}
}

// TestSequencesOutliveTheLongestOutage checks the guard against counting a batch twice after a long
// outage: Redis keeps the sequence of a writer for as long as a node may wait before it sends the
// batch again.
func TestSequencesOutliveTheLongestOutage(t *testing.T) {
	b := newBed(t, nil, "--partitions", "1", "--redis-timeout", "1m", "--request-timeout", "1m")
	b.Ledger.Sending("a", 1)
	b.Ledger.Note("a", 1, proctest.Acked)
	b.node.MustPost("/v1/add", `{"key":"a","ack":"redis"}`)
	keys, err := b.redis.Do("KEYS", "tt:{p0}!w:*").StringSlice()
	if err != nil || len(keys) != 1 {
		t.Fatalf("writers: %v, %v", keys, err)
	}
	ttl, err := b.redis.Do("PTTL", keys[0]).Int64()
	if err != nil || time.Duration(ttl)*time.Millisecond < 47*time.Hour {
		t.Errorf("the sequence lives for %d ms, %v", ttl, err)
	}
	b.settle("one key", 0)
}

// TestStartsWhenRedisAnswersLate loses the answer to the first write of a node: the node counts in
// memory, and asks again.
func TestStartsWhenRedisAnswersLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr())
	lost := proxy.SwallowNext("hash-tags") // written to tt:meta first
	p := program.Serve(t, proctest.Options{}, "--redis", "redis://"+proxy.Addr(),
		"--redis-timeout", "1s", "--hash-seed", "7")
	<-lost
	p.MustPost("/v1/add", `{"key":"a"}`)
	p.Flushed()
	proctest.Until(t, "the log has a line about the outage", func() bool {
		return strings.Contains(p.Log.String(), "Redis does not answer: counting in memory")
	})
}

func TestDegradedWhileRedisIsDown(t *testing.T) {
	for _, onCold := range []string{"allow", "deny"} {
		t.Run(onCold, func(t *testing.T) {
			b := newBed(t, []redistest.Option{redistest.AOF()}, "--on-cold", onCold)
			b.node.MustPost("/v1/add", `{"key":"cold","ack":"redis"}`)
			b.Ledger.Sending("cold", 1)
			b.Ledger.Note("cold", 1, proctest.Acked)
			b.restart()
			tr := b.Traffic()
			tr.Accept(200)
			proctest.Until(t, "readyz says that all is well", func() bool {
				status, body := b.node.Ready()
				return status == 200 && !strings.Contains(body, "degraded\":true")
			})
			b.redis.Kill()
			b.degraded()
			tr.Accept(200)
			proctest.Until(t, "readyz says degraded", func() bool {
				status, body := b.node.Ready()
				if status != 200 {
					t.Fatalf("readyz: %d %s, want 200", status, body)
				}
				return strings.Contains(body, "degraded")
			})
			proctest.Until(t, "counts are marked", func() bool {
				a := b.node.Count(proctest.HotKey, "24h")
				return a.Degraded && a.Source == "degraded" && a.Counts[0].Max > 0
			})
			proctest.Until(t, "a cold key is answered by the policy", func() bool {
				var a proctest.Answer
				must.Succeed(t, b.node.Ask("/v1/acquire", `{"key":"cold","count_denied":false,`+
					`"limits":[{"window":"1m","max":1000000}]}`, &a))
				b.Ledger.Sending("cold", 1)
				if a.Allowed {
					b.Ledger.Note("cold", 1, proctest.Acked)
				} else {
					b.Ledger.Note("cold", 1, proctest.Refused)
				}
				if a.Source != "degraded" || !a.Degraded || a.Allowed != (onCold == "allow") ||
					!a.Allowed && a.Retry < 1 {
					t.Errorf("acquire of a cold key: %+v", a)
				}
				return true
			})
			b.redis.Restart(t)
			tr.Accept(200)
			tr.Stop()
			b.settle("Redis down, on-cold="+onCold, 0)
			proctest.Until(t, "counts are no longer marked",
				func() bool { return !b.node.Count(proctest.HotKey, "24h").Degraded })
		})
	}
}

// TestDegradedPendingIsBounded keeps Redis down for longer than any window. Counts that have left
// every window are dropped, and a metric reports their number; all others arrive.
func TestDegradedPendingIsBounded(t *testing.T) {
	takesLong(t)
	config := must.File(t, "twotier.yaml", "namespaces: {default: {ladder: [1s x 3, 2s x 3]}}\n")
	ladder, err := leaparray.NewLadder(leaparray.DefaultExact,
		leaparray.Level{Width: time.Second, Count: 3},
		leaparray.Level{Width: 2 * time.Second, Count: 3})
	must.Succeed(t, err)
	b := newBed(t, nil, "--config", config, "--partitions", "1", "--redis-timeout", "5s")
	b.node.MustPost("/v1/add", `{"key":"first","ack":"redis"}`)
	// The outcome of this round is unknown as long as Redis is down. No other key is in flight.
	executed := b.proxy.SwallowMatching("first", 1, false)
	b.node.MustPost("/v1/add", `{"key":"first"}`)
	proctest.Wait(t, "the round is carried out", executed)
	b.redis.Kill()
	b.degraded()
	const idle = 20
	for i := range idle {
		b.node.MustPost("/v1/add", fmt.Sprintf(`{"key":"idle%d"}`, i))
	}
	// The busy key gets less than 64 events a second, so each event is a pending bucket until the
	// key has as many as it may have.
	bound := int64(1 + idle + ladder.MaxCells())
	dropped := func() int64 { return b.node.Metric("twotier_dropped_total", `reason="expired"`) }
	sent, most := int64(0), int64(0)
	proctest.Until(t, "events of a key in use are dropped", func() bool {
		b.node.MustPost("/v1/add", `{"key":"busy"}`)
		sent++
		if most = max(most, b.node.Pending()); most > bound {
			t.Fatalf("after %d events %d buckets are pending, want at most %d", sent, most, bound)
		}
		return sent > bound && dropped() > idle
	})
	proctest.Until(t, "keys that are not in use any more are emptied", func() bool {
		return b.node.Pending() == 1
	})
	if n := dropped(); n != sent+idle {
		t.Errorf("of %d events %d were dropped, want all", sent+idle, n)
	}
	t.Logf("%d events, at most %d buckets pending, of %d that may be", sent+idle, most, bound)
	began := time.Now()
	b.node.MustPost("/v1/add", `{"key":"last","n":5}`)
	b.redis.Restart(t)
	b.node.Flushed()
	held, err := b.Stored([]string{"last"})
	if err != nil || held["last"] != 5 && time.Since(began) < 6*time.Second {
		t.Errorf("Redis holds %d, %v, want 5, which are not too old", held["last"], err)
	}
}

// onOneProcessor returns the command that runs a program on the first processor, so that concurrent
// tests have the others. It is empty where that can't be done.
func onOneProcessor() []string {
	if exec.Command("taskset", "-c", "0", "true").Run() != nil {
		return nil
	}
	return []string{"taskset", "-c", "0"}
}

// TestFault20StarvedOfCPU gives the node one processor that it shares with busy loops. The number
// of batches that time out meanwhile depends on the machine. In any case they must be counted once,
// and the node must recover once the loops have ended.
func TestFault20StarvedOfCPU(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := bedOf(t, server)
	b.node.Kill()
	b.node = program.Serve(t, proctest.Options{Env: []string{"GOMAXPROCS=1"},
		Within: onOneProcessor()}, b.Command(0)...)
	b.Nodes[0] = b.node
	stop := starve(t, 3)
	tr := b.Traffic()
	tr.Accept(1500)
	tr.Stop()
	unknown, ok := b.unknowns(), b.node.Metric("twotier_flush_batches_total", `result="ok"`)
	stop()
	b.settle("20 starved of CPU", 0)
	proctest.Until(t, "nothing is degraded", func() bool {
		return b.node.Metric("twotier_degraded_partitions", "") == 0
	})
	t.Logf("%d batches ok, %d of unknown outcome", ok, unknown)
}

// starve starts busy loops, on one processor if possible. They end with the test, or once the
// returned function is called.
func starve(t *testing.T, loops int) (stop func()) {
	t.Helper()
	var all []*child.Child
	stop = func() {
		for _, busy := range all {
			_ = busy.Kill() // it has no other end
		}
		all = nil
	}
	t.Cleanup(stop)
	for range loops {
		line := append(onOneProcessor(), "sh", "-c", "while :; do :; done")
		busy, err := child.Start(exec.Command(line[0], line[1:]...))
		must.Succeed(t, err)
		all = append(all, busy)
	}
	return stop
}
