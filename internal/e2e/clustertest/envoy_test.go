package clustertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// asksEnvoy asks a node about a descriptor of one entry, such as ip=1, as JSON, or at the door
// grpc. It reports whether the answer is OVER_LIMIT.
func asksEnvoy(t *testing.T, p *proctest.Process, door, domain, entry string) bool {
	t.Helper()
	key, value, _ := strings.Cut(entry, "=")
	request := &ratelimitv3.RateLimitRequest{Domain: domain,
		Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}}}
	if door == "json" {
		body, err := protojson.Marshal(request)
		must.Succeed(t, err)
		status, answer, err := p.Post("/json", string(body))
		must.Succeed(t, err)
		over := strings.Contains(string(answer), `"OVER_LIMIT"`)
		if want := map[bool]int{false: 200, true: 429}[over]; status != want {
			t.Errorf("status %d: %s", status, answer)
		}
		return over
	}
	conn, err := grpc.NewClient(p.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
	must.Succeed(t, err)
	return answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK
}

// TestEnvoyNearALimit comes near the limit of a descriptor, at each of two doors: the metrics, the
// decision log, the history and the webhook report it as for a rule, once per key.
func TestEnvoyNearALimit(t *testing.T) {
	bodies := make(chan string, 10)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	t.Cleanup(web.Close)
	log := filepath.Join(t.TempDir(), "decided.json")
	c := start(t, 1, "--grpc", "127.0.0.1:0", "--notify-url", web.URL, "--decisions", log,
		"--decisions-sample", "near=1", "--rules", configured(t, "domain: edge\ndescriptors:\n"+
			"  - {key: ip, warn: 60%, rate_limit: {unit: day, requests_per_unit: 5}}\n"))
	p := c.Nodes[0]
	for i := range 6 {
		for _, door := range []string{"grpc", "json"} {
			if over := asksEnvoy(t, p, door, "edge", "ip="+door); over != (i == 5) {
				t.Errorf("%s: request %d, over is %v", door, i, over)
			}
		}
	}
	for _, door := range []string{"grpc", "envoy-json"} {
		label := fmt.Sprintf(`door=%q,ns="edge",rule="",verdict="near"`, door)
		if n := p.Metric("twotier_decisions_total", label); n != 3 {
			t.Errorf("%s: %d were near", door, n)
		}
	}
	proctest.Until(t, "the history has what was near", func() bool {
		_, answer := p.Get("/v1/count?ns=@verdicts&key=edge/near&window=24h")
		return strings.Contains(string(answer), `"count":6,`)
	})
	type notification struct {
		Namespace, Key, Rule, Window string
		Max, Count, At               int64
	}
	var all []notification
	for len(all) < 2 {
		var some []notification
		must.Succeed(t, json.Unmarshal([]byte(<-bodies), &some))
		all = append(all, some...)
	}
	const want = "[{edge ip=grpc  24h 5 3 60} {edge ip=json  24h 5 3 60}]"
	if got := fmt.Sprint(all); got != want {
		t.Errorf("notified of %s, want %s", got, want)
	}
	c.Stop(0)
	lines, err := os.ReadFile(log)
	if n := strings.Count(string(lines), `"verdict":"near"`); err != nil || n != 6 ||
		len(bodies) != 0 {
		t.Errorf("%d lines, %v: %s", n, err, lines)
	}
}
