package clustertest

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
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
	filter := new(ratelimitv3.RateLimit)
	valid(t, withoutType(at(t, manager, "http_filters", 0, "typed_config")), filter)
	hasDomain(t, filter)
}

// hasDomain checks that the domain of a filter is in the rules of the examples.
func hasDomain(t *testing.T, filter *ratelimitv3.RateLimit) {
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
	filter := new(ratelimitv3.RateLimit)
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
	filter := new(ratelimitv3.RateLimit)
	valid(t, withoutType(at(t, value(1), "typed_config")), filter)
	hasDomain(t, filter)
	hasLimits(t, map[string]any{"rate_limits": value(2)})
}
