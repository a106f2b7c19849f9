package faulttest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

func TestDegradedWhileRedisIsDown(t *testing.T) {
	for _, onCold := range []string{"allow", "deny"} {
		t.Run(onCold, func(t *testing.T) {
			b := newBed(t, []redistest.Option{redistest.AOF()}, "--on-cold", onCold)
			b.node.MustPost("/v1/add", `{"key":"cold","ack":"redis"}`)
			b.l.Sending("cold", 1)
			b.l.Note("cold", 1, proctest.Acked)
			b.restart()
			tr := b.traffic()
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
				out := b.node.MustPost("/v1/acquire",
					`{"key":"cold","count_denied":false,"limits":[{"window":"1m","max":1000000}]}`)
				if err := json.Unmarshal(out, &a); err != nil {
					t.Fatal(err)
				}
				b.l.Sending("cold", 1)
				if a.Allowed {
					b.l.Note("cold", 1, proctest.Acked)
				} else {
					b.l.Note("cold", 1, proctest.Refused)
				}
				if a.Source != "degraded" || !a.Degraded || a.Allowed != (onCold == "allow") ||
					!a.Allowed && a.Retry < 1 {
					t.Errorf("acquire of a cold key: %s", out)
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
// every window are dropped, and the metric says how many; all others arrive.
func TestDegradedPendingIsBounded(t *testing.T) {
	takesLong(t)
	config := filepath.Join(t.TempDir(), "twotier.yaml")
	if err := os.WriteFile(config, []byte("namespaces: {default: {ladder: [1s x 3, 2s x 3]}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, nil, "--config", config, "--partitions", "4")
	b.node.MustPost("/v1/add", `{"key":"first","ack":"redis"}`)
	b.redis.Kill()
	b.node.MustPost("/v1/add", `{"key":"first"}`)
	b.degraded()
	const keys = 100
	// Of each level there are never more buckets than it keeps, in flight and since.
	const bound = 2 * (keys + 1) * (3 + 2 + 1 + 3 + 1 + 1)
	dropped := func() int64 { return b.node.Metric("twotier_dropped_total", `reason="expired"`) }
	sent, most := int64(0), int64(0)
	proctest.Until(t, "expired buckets are dropped", func() bool {
		for i := range keys {
			b.node.MustPost("/v1/add", fmt.Sprintf(`{"key":"k%d"}`, i))
		}
		sent += keys
		most = max(most, b.node.Pending())
		return dropped() > 4*keys
	})
	if most > bound {
		t.Errorf("%d buckets were pending, want at most %d", most, bound)
	}
	// The keys are not used any more, so only rounds in flight may stay.
	before := dropped()
	proctest.Until(t, "idle keys are emptied", func() bool {
		return dropped() > before && b.node.Count("k5", "6s").Counts[0].Max == 0
	})
	b.node.MustPost("/v1/add", `{"key":"last","n":5}`)
	b.redis.Restart(t)
	b.node.Flushed()
	if a := b.node.Count("last", "6s"); a.Counts[0].Max != 5 {
		t.Logf("the last add has left its window before it was asked for: %+v", a)
	}
	t.Logf("%d events, at most %d buckets pending, %d dropped", sent, most, dropped())
}

// onOneProcessor returns what runs a command on the first processor, so that tests that run at the
// same time have the others. It is empty where that can't be done.
func onOneProcessor() []string {
	if exec.Command("taskset", "-c", "0", "true").Run() != nil {
		return nil
	}
	return []string{"taskset", "-c", "0"}
}

// TestFault20StarvedOfCPU gives the node one processor and makes it share that with busy loops. It
// depends on the machine how many batches time out meanwhile. In any case they must be counted
// once, and all must be well once the loops have ended.
func TestFault20StarvedOfCPU(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := bedOf(t, server)
	b.node.Kill()
	b.node = build.program.Serve(t, proctest.Options{Env: []string{"GOMAXPROCS=1"},
		Within: onOneProcessor()}, b.args...)
	stop := starve(t, 3)
	tr := b.traffic()
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
// function that it returns is called.
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
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, busy)
	}
	return stop
}
