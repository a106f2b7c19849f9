package archtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Short names for imports from other modules.
const (
	automemlimit   = "github.com/KimMachineGun/automemlimit/memlimit"
	cobra          = "github.com/spf13/cobra"
	consistent     = "github.com/buraksezer/consistent"
	fasthttp       = "github.com/valyala/fasthttp"
	envoyAPI       = "github.com/envoyproxy/go-control-plane/envoy"
	http2          = "golang.org/x/net/http2"
	fastjson       = "github.com/valyala/fastjson"
	goRedis        = "github.com/redis/go-redis/v9"
	miniredis      = "github.com/alicebob/miniredis/v2"
	grpc           = "google.golang.org/grpc"
	grpcErrors     = "google.golang.org/genproto/googleapis/rpc/errdetails"
	openTelemetry  = "go.opentelemetry.io/otel"
	lineDiff       = "github.com/rogpeppe/go-internal/diff"
	memberlist     = "github.com/hashicorp/memberlist"
	pflag          = "github.com/spf13/pflag"
	metrics        = "twotier.dev/twotier/internal/metrics"
	prometheus     = "github.com/prometheus/client_golang/prometheus"
	ristretto      = "github.com/dgraph-io/ristretto/v2"
	protobuf       = "google.golang.org/protobuf"
	systemd        = "github.com/coreos/go-systemd/v22"
	prometheusData = "github.com/prometheus/client_model/go"
	prometheusText = "github.com/prometheus/common/expfmt"
	xxhash         = "github.com/cespare/xxhash/v2"
	yamlLibrary    = "go.yaml.in/yaml/v4"
)

// importMap lists the packages that each package may import from outside the standard library. The
// domain in the middle knows nothing about its surroundings, and adapters import the packages they
// serve. A path also stands for the packages below it.
func importMap() map[string][]string {
	return map[string][]string{
		// The words that all packages share.
		".": {"twotier.dev/twotier/internal/zones", "twotier.dev/twotier/leaparray", xxhash},

		// The words of operations, for all listeners and clients.
		"internal/fields": {"twotier.dev/twotier"},

		// The arithmetic of windows, and the counter built on it.
		"leaparray": {},
		"decide":    {"twotier.dev/twotier", "twotier.dev/twotier/leaparray"},
		"syncer": {
			"twotier.dev/twotier", "twotier.dev/twotier/decide",
			"twotier.dev/twotier/internal/arena",
			"twotier.dev/twotier/internal/slab", "twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/syncer/internal/keys",
			"twotier.dev/twotier/syncer/internal/loans",
			"twotier.dev/twotier/syncer/internal/room",
			"twotier.dev/twotier/syncer/internal/rounds",
			"twotier.dev/twotier/syncer/internal/shifts", "twotier.dev/twotier/syncer/store",
		},
		"syncer/store": {"twotier.dev/twotier", "twotier.dev/twotier/leaparray"},
		"syncer/internal/keys": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/arena",
			"twotier.dev/twotier/internal/hashset", "twotier.dev/twotier/internal/slab",
			"twotier.dev/twotier/internal/table", "twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/syncer/store", xxhash,
		},
		"syncer/internal/loans": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/elapsed",
			"twotier.dev/twotier/leaparray",
		},
		"syncer/internal/room": {},
		"syncer/internal/rounds": {
			"twotier.dev/twotier/internal/arena", "twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/syncer/internal/keys",
			"twotier.dev/twotier/syncer/internal/shifts", "twotier.dev/twotier/syncer/store",
		},
		"syncer/internal/shifts": {},

		"internal/slab":    {},
		"internal/hashset": {"twotier.dev/twotier/internal/slab"},
		"internal/arena":   {"twotier.dev/twotier/internal/slab"},
		"internal/table": {
			"twotier.dev/twotier/internal/arena", "twotier.dev/twotier/internal/slab",
		},

		// Calls to other processes.
		"internal/batching": {},
		"internal/replay":   {},

		// Stores: they implement the interfaces that syncer declares.
		"redisstore": {
			"twotier.dev/twotier", "twotier.dev/twotier/decide",
			"twotier.dev/twotier/internal/batching",
			"twotier.dev/twotier/internal/durations", "twotier.dev/twotier/internal/redisurl",
			"twotier.dev/twotier/internal/retry", "twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/redisstore/internal/connect",
			"twotier.dev/twotier/redisstore/internal/fences",
			"twotier.dev/twotier/redisstore/internal/layout",
			"twotier.dev/twotier/redisstore/internal/msgpack",
			"twotier.dev/twotier/redisstore/internal/scripts",
			"twotier.dev/twotier/syncer", goRedis, xxhash,
		},
		"redisstore/internal/layout": {
			"twotier.dev/twotier", "twotier.dev/twotier/leaparray", "twotier.dev/twotier/syncer",
		},
		"redisstore/internal/connect": {
			"twotier.dev/twotier/internal/durations", "twotier.dev/twotier/internal/redisurl",
			"twotier.dev/twotier/leaparray", "twotier.dev/twotier/redisstore/internal/layout",
			"twotier.dev/twotier/redisstore/internal/scripts", "twotier.dev/twotier/syncer",
			goRedis,
		},
		"redisstore/internal/fences": {
			"twotier.dev/twotier", "twotier.dev/twotier/redisstore/internal/scripts", goRedis,
		},
		"redisstore/internal/msgpack": {},
		"redisstore/internal/scripts": {
			"twotier.dev/twotier", "twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/syncer", goRedis,
		},
		"internal/redisurl": {},
		"syncer/storetest":  {"twotier.dev/twotier/leaparray", "twotier.dev/twotier/syncer"},

		// One node: its parts, which don't know the node, and the node, which knows no wire format.
		"ring":                {memberlist, consistent, xxhash},
		"internal/idle":       {},
		"internal/trace":      {},
		"internal/durations":  {},
		"internal/clientaddr": {},
		"internal/version":    {},
		"internal/zones":      {},
		"internal/elapsed":    {"golang.org/x/sys/unix"},
		"internal/storeclock": {"twotier.dev/twotier/internal/retry"},
		"internal/retry":      {},
		"internal/roster":     {"twotier.dev/twotier/internal/retry"},
		"internal/strictyaml": {yamlLibrary},

		// Probable misconfigurations.
		"internal/warning": {metrics, prometheus},
		"internal/lint": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/rules", "twotier.dev/twotier/internal/warning",
			"twotier.dev/twotier/leaparray",
		},

		// Rules: names for limits, independent of counting.
		"internal/rules": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/strictyaml",
		},
		"internal/rulebook": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rules", "twotier.dev/twotier/syncer",
		},
		// Tests of rules assemble a node that only they use.
		"internal/ruletest": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/ask",
			"twotier.dev/twotier/internal/cluster", "twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/decisions", "twotier.dev/twotier/internal/envoy",
			"twotier.dev/twotier/internal/fields",
			"twotier.dev/twotier/internal/lint",
			"twotier.dev/twotier/internal/node", "twotier.dev/twotier/internal/request",
			"twotier.dev/twotier/internal/rules", "twotier.dev/twotier/internal/storeclock",
			"twotier.dev/twotier/internal/strictyaml", "twotier.dev/twotier/internal/verdicts",
			"twotier.dev/twotier/syncer",
		},
		"internal/rpc": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/trace",
			"twotier.dev/twotier/ring",
		},
		"internal/refusals":   {"twotier.dev/twotier", ristretto},
		"internal/refusallog": {"twotier.dev/twotier", "twotier.dev/twotier/internal/decisions"},
		"internal/topkeys": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/decisions",
			"twotier.dev/twotier/leaparray",
		},
		"internal/backtest": {"twotier.dev/twotier", "twotier.dev/twotier/leaparray"},
		"internal/hotkeys": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rpc", "twotier.dev/twotier/ring",
			"twotier.dev/twotier/syncer",
		},
		"internal/modes": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rpc", "twotier.dev/twotier/ring",
		},
		"internal/ownership": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/cluster",
			"twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rpc", "twotier.dev/twotier/ring",
			"twotier.dev/twotier/syncer",
		},
		"internal/multiowner": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/elapsed",
			"twotier.dev/twotier/internal/retry", "twotier.dev/twotier/internal/rpc",
			"twotier.dev/twotier/ring", xxhash,
		},
		"internal/routing": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/modes",
			"twotier.dev/twotier/internal/multiowner", "twotier.dev/twotier/internal/ownership",
			"twotier.dev/twotier/internal/retry", "twotier.dev/twotier/internal/rpc",
			"twotier.dev/twotier/ring",
		},
		"internal/events": {"twotier.dev/twotier/internal/cluster"},
		"internal/bans": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/decisions", metrics, prometheus,
		},
		// Companions and holds are operations of other operations.
		"internal/companions": {"twotier.dev/twotier", "twotier.dev/twotier/leaparray"},
		"internal/holds":      {"twotier.dev/twotier", metrics, prometheus},
		"internal/node": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/backtest",
			"twotier.dev/twotier/internal/bans", "twotier.dev/twotier/internal/cluster",
			"twotier.dev/twotier/internal/companions", "twotier.dev/twotier/internal/decisions",
			"twotier.dev/twotier/internal/elapsed",
			"twotier.dev/twotier/internal/events",
			"twotier.dev/twotier/internal/hotkeys", "twotier.dev/twotier/internal/modes",
			"twotier.dev/twotier/internal/multiowner", "twotier.dev/twotier/internal/ownership",
			"twotier.dev/twotier/internal/refusallog",
			"twotier.dev/twotier/internal/refusals", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/routing", "twotier.dev/twotier/internal/rpc",
			"twotier.dev/twotier/internal/storeclock", "twotier.dev/twotier/internal/topkeys",
			"twotier.dev/twotier/internal/trace", "twotier.dev/twotier/internal/verdicts",
			"twotier.dev/twotier/leaparray", "twotier.dev/twotier/ring",
			"twotier.dev/twotier/syncer", prometheus,
		},
		// It reports its traffic in the types of the API, as the node does.
		"internal/peer": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/batching",
			"twotier.dev/twotier/internal/cluster", "twotier.dev/twotier/internal/elapsed",
			"twotier.dev/twotier/internal/fields",
			"twotier.dev/twotier/internal/node", "twotier.dev/twotier/internal/ownership",
			"twotier.dev/twotier/internal/replay", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rpc", "twotier.dev/twotier/internal/trace",
			"twotier.dev/twotier/leaparray",
			"twotier.dev/twotier/ring", "twotier.dev/twotier/syncer",
		},

		// The network side. It declares the Service that a node implements, and doesn't know the
		// node.
		"internal/token":     {"twotier.dev/twotier"},
		"internal/ratefield": {},
		"internal/cluster":   {"twotier.dev/twotier/syncer"},
		"internal/reload": {
			"twotier.dev/twotier/internal/retry", "twotier.dev/twotier/internal/warning",
		},
		"internal/certs": {},
		"internal/peerhttp": {
			"twotier.dev/twotier/internal/idle", "twotier.dev/twotier/internal/rpc", fasthttp,
		},
		// The conventions that all listeners share.
		"internal/metrics":  {prometheus},
		"internal/listener": {"twotier.dev/twotier/internal/clientaddr"},
		"internal/hostname": {},
		"internal/verdicts": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/decisions",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/trace",
			metrics, prometheus,
		},
		"internal/outbox": {"twotier.dev/twotier/internal/retry", metrics, prometheus},
		"internal/decisionlog": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/decisions",
			"twotier.dev/twotier/internal/outbox", metrics, prometheus,
		},
		"internal/webhook": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/decisions", "twotier.dev/twotier/internal/outbox",
		},
		"internal/otlp": {
			"twotier.dev/twotier/internal/outbox", "twotier.dev/twotier/internal/trace",
			openTelemetry,
		},
		"internal/decisions": {"twotier.dev/twotier", "twotier.dev/twotier/internal/trace"},
		"internal/request": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/rpc",
			"twotier.dev/twotier/internal/trace",
		},
		"internal/ask": {
			"twotier.dev/twotier",
			"twotier.dev/twotier/internal/decisions", "twotier.dev/twotier/internal/holds",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/token",
			"twotier.dev/twotier/internal/trace", "twotier.dev/twotier/internal/verdicts",
		},
		"internal/explain": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/ask",
			"twotier.dev/twotier/internal/refusallog",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/verdicts",
		},
		"httpapi/internal/wire": {"twotier.dev/twotier/internal/request", fasthttp},
		"httpapi/internal/codec": {
			"twotier.dev/twotier", "twotier.dev/twotier/httpapi/internal/wire",
			"twotier.dev/twotier/internal/ask", "twotier.dev/twotier/internal/decisions",
			"twotier.dev/twotier/internal/fields", "twotier.dev/twotier/internal/ratefield",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/verdicts",
		},
		"httpapi/internal/memory": {
			"twotier.dev/twotier/httpapi/internal/wire", "twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/request",
		},
		"httpapi/internal/receive": {
			"twotier.dev/twotier/httpapi/internal/memory",
			"twotier.dev/twotier/httpapi/internal/wire", "twotier.dev/twotier/internal/request",
			fasthttp,
		},
		"httpapi/internal/exposition": {
			"twotier.dev/twotier/internal/cluster", "twotier.dev/twotier/internal/durations",
			"twotier.dev/twotier/syncer", metrics, prometheus,
		},
		"httpapi/internal/forwarded": {
			"twotier.dev/twotier/httpapi/internal/wire",
			"twotier.dev/twotier/internal/clientaddr", "twotier.dev/twotier/internal/request",
			"twotier.dev/twotier/internal/warning", fasthttp,
		},
		"httpapi": {
			"twotier.dev/twotier", "twotier.dev/twotier/httpapi/internal",
			"twotier.dev/twotier/internal/ask",
			"twotier.dev/twotier/internal/backtest", "twotier.dev/twotier/internal/clientaddr",
			"twotier.dev/twotier/internal/cluster", "twotier.dev/twotier/internal/companions",
			"twotier.dev/twotier/internal/decisions", "twotier.dev/twotier/internal/explain",
			"twotier.dev/twotier/internal/fields",
			"twotier.dev/twotier/internal/hostname", "twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/peerhttp", "twotier.dev/twotier/internal/ratefield",
			"twotier.dev/twotier/internal/replay",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/trace",
			"twotier.dev/twotier/internal/verdicts", "twotier.dev/twotier/internal/version",
			"twotier.dev/twotier/internal/warning", "twotier.dev/twotier/syncer", fasthttp,
			fastjson, metrics, prometheus, prometheusText, prometheusData,
		},
		"internal/resp": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/ask",
			"twotier.dev/twotier/internal/explain", "twotier.dev/twotier/internal/fields",
			"twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/verdicts",
			metrics, prometheus,
		},
		"internal/envoy": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/ask",
			"twotier.dev/twotier/internal/decisions", "twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/ratefield",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/rules",
			"twotier.dev/twotier/internal/trace", "twotier.dev/twotier/internal/verdicts",
			"twotier.dev/twotier/internal/warning", "twotier.dev/twotier/leaparray",
			metrics, prometheus, grpc, envoyAPI, protobuf, http2,
		},
		"httpapi/client": {
			"twotier.dev/twotier",
			"twotier.dev/twotier/internal/batching", "twotier.dev/twotier/internal/clientaddr",
			"twotier.dev/twotier/internal/idle", "twotier.dev/twotier/internal/ratefield",
			fasthttp, fastjson,
		},
		"httpapi/client/grpcgate": {
			"twotier.dev/twotier/httpapi/client", grpc, grpcErrors, protobuf,
		},

		// The program: the only package that knows all others.
		"internal/config": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/hostname",
			"twotier.dev/twotier/internal/redisurl", "twotier.dev/twotier/internal/strictyaml",
			"twotier.dev/twotier/leaparray", pflag, yamlLibrary,
		},
		"internal/demo": {
			"twotier.dev/twotier/httpapi/client", "twotier.dev/twotier/internal/retry",
		},
		"internal/cli": {
			"twotier.dev/twotier", "twotier.dev/twotier/httpapi/client",
			"twotier.dev/twotier/internal/backtest", "twotier.dev/twotier/internal/certs",
			"twotier.dev/twotier/internal/cluster", "twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/explain",
			"twotier.dev/twotier/internal/fields", "twotier.dev/twotier/internal/imports",
			"twotier.dev/twotier/internal/lint",
			"twotier.dev/twotier/internal/mirror", "twotier.dev/twotier/internal/mirror/tap",
			"twotier.dev/twotier/internal/redisurl", "twotier.dev/twotier/internal/refusallog",
			"twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/internal/rules", "twotier.dev/twotier/internal/ruletest",
			"twotier.dev/twotier/internal/warning", cobra, pflag, lineDiff,
		},
		"internal/imports": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/redisurl",
			"twotier.dev/twotier/internal/request", "twotier.dev/twotier/internal/retry",
			"twotier.dev/twotier/leaparray", goRedis,
		},
		"internal/mirror": {
			"twotier.dev/twotier", "twotier.dev/twotier/httpapi/client",
			"twotier.dev/twotier/internal/config",
			"twotier.dev/twotier/internal/hostname", "twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/request",
		},
		"internal/mirror/tap": {
			"twotier.dev/twotier/httpapi/client",
			"twotier.dev/twotier/internal/config", "twotier.dev/twotier/internal/listener",
			"twotier.dev/twotier/internal/mirror", "twotier.dev/twotier/internal/strictyaml",
		},
		"internal/doctor": {
			"twotier.dev/twotier/internal/warning", "twotier.dev/twotier/redisstore",
		},
		"cmd/twotier": {"twotier.dev/twotier/...", automemlimit, cobra, goRedis, fasthttp,
			memberlist, miniredis, pflag, prometheus, systemd, "golang.org/x/sys/unix"},

		// Tests and tools.
		"internal/testing/extended": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/companions",
			"twotier.dev/twotier/syncer",
		},
		"internal/testing/child": {"golang.org/x/sys/unix"},
		"internal/testing/embedded": {
			"twotier.dev/twotier", "twotier.dev/twotier/leaparray", "twotier.dev/twotier/syncer",
		},
		"internal/testing/must":     {},
		"internal/testing/race":     {},
		"internal/testing/seed":     {},
		"internal/testing/spantest": {"twotier.dev/twotier/internal/trace"},
		"internal/testing/testca":   {},
		"internal/testing/redistest": {
			"twotier.dev/twotier/internal/testing/child",
			"twotier.dev/twotier/internal/testing/testca", goRedis,
		},
		"internal/testing/proctest": {
			"twotier.dev/twotier", "twotier.dev/twotier/internal/testing/child",
			"twotier.dev/twotier/redisstore", goRedis,
		},
		"internal/testing/costtable": {"twotier.dev/twotier/internal/testing/must"},
		"internal/testing/npm":       {"twotier.dev/twotier/internal/testing/must"},
		"internal/testing/gated": {
			"twotier.dev/twotier/httpapi/client", "twotier.dev/twotier/internal/testing/must",
			"twotier.dev/twotier/internal/testing/proctest",
		},
		"internal/testing/faultproxy": {},
		"internal/testing/simnet":     {memberlist},
		"internal/testing/testrun":    {},
		"internal/archtest":           {},
		"scripts/ociimage":            {},
		"scripts/sbom":                {},
		"internal/testing/faultstore": {"twotier.dev/twotier/syncer"},
	}
}

func TestImports(t *testing.T) {
	allowed := importMap()
	all := packages(t)
	for path := range allowed {
		if !slices.ContainsFunc(all, func(p pkg) bool { return p.path == path }) {
			t.Errorf("the import map has %s, which is no package", path)
		}
	}
	for _, p := range all {
		may, ok := allowed[p.path]
		if !ok {
			t.Errorf("%s is not in the import map: decide what it may know and add it", p.path)
			continue
		}
		for _, f := range p.files {
			for _, imp := range f.Imports {
				to, err := strconv.Unquote(imp.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if !isStandard(to) &&
					!slices.ContainsFunc(may, func(m string) bool { return within(to, m) }) {
					t.Errorf("%s: %s must not import %s; it may import %v", p.at(imp.Pos()), p.path,
						to, may)
				}
			}
		}
	}
}

// TestImportMapHasNoCycle finds cycles in the map, which allow imports that could never be built.
func TestImportMapHasNoCycle(t *testing.T) {
	allowed := importMap()
	var visit func(path string, above []string)
	visit = func(path string, above []string) {
		if slices.Contains(above, path) {
			t.Fatalf("the import map has a cycle: %v", append(above, path))
		}
		for _, to := range allowed[path] {
			if to == module {
				to = module + "/."
			}
			if below, ok := strings.CutPrefix(to, module+"/"); ok && below != "..." {
				visit(below, append(above, path))
			}
		}
	}
	for path := range allowed {
		visit(path, nil)
	}
}

// isStandard reports whether an import path belongs to the standard library: these have no dot in
// the first element.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// within reports whether an import path is above or below it.
func within(importPath, above string) bool {
	if above == module {
		return importPath == above // the words that all share
	}
	above = strings.TrimSuffix(above, "/...")
	return importPath == above || strings.HasPrefix(importPath, above+"/")
}
