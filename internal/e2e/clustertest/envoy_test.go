package clustertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// message is a message of Envoy's API with its validation rules.
type message interface {
	proto.Message
	ValidateAll() error
}

// example reads the YAML documents of a file in deploy/envoy.
func example(t *testing.T, name string) (documents []any) {
	t.Helper()
	text := must.Read(t, filepath.Join("..", "..", "..", "deploy", "envoy", name))
	if err := yaml.Load([]byte(text), &documents, yaml.WithAllDocuments()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return documents
}

// valid parses a part of an example as a message, with all nested messages, and checks it as Envoy
// does.
func valid(t *testing.T, part any, to message) {
	t.Helper()
	text, err := json.Marshal(part)
	if err == nil {
		err = protojson.Unmarshal(text, to)
	}
	if err == nil {
		err = to.ValidateAll()
	}
	if err != nil {
		t.Errorf("%T: %v in\n%s", to, err, text)
	}
}

// at returns the part of a document under keys and indexes.
func at(t *testing.T, document any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch in := document.(type) {
		case map[string]any:
			name, _ := step.(string)
			document = in[name]
		case []any:
			i, _ := step.(int)
			document = in[i]
		default:
			t.Fatalf("there is no %v of %v", step, path)
		}
	}
	return document
}

func TestEnvoyExampleIsValid(t *testing.T) {
	document := example(t, "envoy.yaml")[0]
	valid(t, document, new(bootstrapv3.Bootstrap))
	manager := at(t, document, "static_resources", "listeners", 0, "filter_chains", 0, "filters", 0,
		"typed_config")
	valid(t, withoutType(manager), new(hcmv3.HttpConnectionManager))
	filter := new(filterv3.RateLimit)
	valid(t, withoutType(at(t, manager, "http_filters", 0, "typed_config")), filter)
	hasDomain(t, filter)
}

// hasDomain checks that the domain of a filter is in the rules of the examples.
func hasDomain(t *testing.T, filter *filterv3.RateLimit) {
	t.Helper()
	text := must.Read(t, filepath.Join("..", "..", "..", "deploy", "envoy", "rules.yaml"))
	document, err := rules.Read("rules.yaml", []byte(text))
	must.Succeed(t, err)
	domain := document.Domain(filter.GetDomain())
	if domain == nil {
		t.Fatalf("rules.yaml has no domain %q", filter.GetDomain())
	}
	for _, key := range []string{"remote_address", "api_key", "team"} {
		if limit, _ := domain.Find([]rules.Entry{{Key: key, Value: "x"}}); limit == nil {
			t.Errorf("rules.yaml has no limit for %s", key)
		}
	}
}

// withoutType removes the type of a message in an Any, which the message itself doesn't know.
func withoutType(part any) any {
	in, _ := part.(map[string]any)
	out := map[string]any{}
	for name, value := range in {
		if name != "@type" {
			out[name] = value
		}
	}
	return out
}

func TestIstioExampleIsValid(t *testing.T) {
	documents := example(t, "istio.yaml")
	patch := []any{"spec", "configPatches", 0, "patch", "value"}
	filter := new(filterv3.RateLimit)
	valid(t, withoutType(at(t, at(t, documents[0], patch...), "typed_config")), filter)
	hasDomain(t, filter)
	hasLimits(t, at(t, documents[1], patch...))
}

// hasLimits checks the rate limits of a virtual host.
func hasLimits(t *testing.T, part any) {
	t.Helper()
	in, _ := part.(map[string]any)
	host := map[string]any{"name": "all", "domains": []string{"*"}, "rate_limits": in["rate_limits"]}
	message := new(routev3.VirtualHost)
	valid(t, host, message)
	if len(message.GetRateLimits()) != 2 {
		t.Errorf("%d rate limits, want 2", len(message.GetRateLimits()))
	}
}

func TestGatewayExampleIsValid(t *testing.T) {
	documents := example(t, "gateway-api.yaml")
	var kinds []string
	for _, d := range documents {
		kind, _ := at(t, d, "kind").(string)
		kinds = append(kinds, kind)
	}
	if !slices.Equal(kinds, []string{"Gateway", "HTTPRoute", "EnvoyPatchPolicy"}) {
		t.Fatalf("kinds %v", kinds)
	}
	value := func(i int) any {
		return at(t, documents[2], "spec", "jsonPatches", i, "operation", "value")
	}
	valid(t, value(0), new(clusterv3.Cluster))
	filter := new(filterv3.RateLimit)
	valid(t, withoutType(at(t, value(1), "typed_config")), filter)
	hasDomain(t, filter)
	hasLimits(t, map[string]any{"rate_limits": value(2)})
}

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
