package micro_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/proc"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
)

// BenchmarkHTTP measures how close POST /v1/add comes to the cheapest possible HTTP server: the
// same generator calls twotier and a server that only returns the same bytes in turn, and the
// result is the ratio within each pair. It also measures quiet batches. It does both without Redis,
// and while all counts are flushed to a Redis on the same cores.
func BenchmarkHTTP(b *testing.B) {
	env := programs(b)
	for _, rv := range []rival.Rival{rival.Twotier("memory", 1, rival.Memory),
		rival.Twotier("redis", 1, rival.TwoTier)} {
		b.Run("store="+rv.Name, func(b *testing.B) {
			s := start(b, rv, env)
			twin := startTwin(b, env, s.Servers[0])
			for _, keys := range []int{1_000, 50_000} {
				b.Run(named("adds=1", keys), func(b *testing.B) { benchmarkPair(b, s, twin, keys) })
			}
			for _, keys := range []int{1_000, 50_000, 1_000_000} {
				b.Run(named("adds=1000", keys), func(b *testing.B) { benchmarkBatches(b, s, keys) })
			}
		})
	}
}

// benchmarkPair measures one server right after the other. Ratios are twotier's over the other's.
func benchmarkPair(b *testing.B, twotier, nothing *rival.Stand, keys int) {
	warmUp(b, twotier, keys)
	o := drive.Options{Workload: "uniform", Keys: uint64(keys), Adds: true}
	t, n := generate(b, twotier, o), generate(b, nothing, o)
	b.ReportMetric(t.PerSecond, "adds/s")
	b.ReportMetric(n.PerSecond, "nothing/s")
	b.ReportMetric(t.PerSecond/n.PerSecond, "ratio")
	b.ReportMetric(float64(t.Latency.P99)/float64(n.Latency.P99), "p99-ratio")
	b.ReportMetric(n.Usage.Share(), "nothing-generator-share")
	reportShare(b, t.Usage)
}

// benchmarkBatches adds to keys that exist, in quiet batches of 1,000.
func benchmarkBatches(b *testing.B, s *rival.Stand, keys int) {
	warmUp(b, s, keys)
	r := generate(b, s, drive.Options{Workload: "uniform", Keys: uint64(keys), Adds: true,
		Batch: 1000, Workers: 4})
	b.ReportMetric(r.PerSecond, "adds/s")
	b.ReportMetric(float64(r.Latency.P99)/1e3, "p99-ms")
	reportShare(b, r.Usage)
}

// warmUp counts every key that generate will draw, once.
func warmUp(b *testing.B, s *rival.Stand, keys int) {
	p := population{stand: s, keys: keys}
	must.Succeed(b, p.fillAt(b.Context(), 0))
}

// startTwin starts a server that answers every request with the server's answer to an add, and
// checks that the answers are equal byte by byte.
func startTwin(b *testing.B, env rival.Env, s *proc.Server) *rival.Stand {
	want, body, err := answerOf(s)
	must.Succeed(b, err)
	twin := start(b, rival.Nothing(string(body)), env)
	if got, _, err := answerOf(twin.Servers[0]); err != nil || !bytes.Equal(got, want) {
		b.Fatalf("it answers %q, twotier %q, %v", got, want, err)
	}
	return twin
}

// answerOf returns a server's answer to an add, with and without its header.
func answerOf(s *proc.Server) (all, body []byte, err error) {
	sample := strings.NewReader(`{"key":"` + drive.Key(1) + `"}`)
	resp, err := http.Post("http://"+s.Addr+"/v1/add", "application/json", sample)
	if err != nil {
		return nil, nil, fmt.Errorf("sample: %w", err)
	}
	defer resp.Body.Close()
	all, err = httputil.DumpResponse(resp, true)
	_, body, _ = bytes.Cut(all, []byte("\r\n\r\n"))
	return all, body, err
}
