package config_test

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/testing/must"
)

// writeFile writes a configuration file and returns its path.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	return must.File(t, "twotier.yaml", text)
}

// mustFail fails the test unless the error has those texts and none of secret.
func mustFail(t *testing.T, args, environ []string, secret string, want ...string) {
	t.Helper()
	_, err := config.Parse(args, environ)
	if err == nil || secret != "" && strings.Contains(err.Error(), secret) {
		t.Errorf("%q %q: %v", args, environ, err)
		return
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q %q: got %v, want %q", args, environ, err, text)
		}
	}
}

func mustParse(t *testing.T, args, environ []string) config.Config {
	t.Helper()
	c, err := config.Parse(args, environ)
	must.Succeed(t, err)
	return c
}

func TestDefaults(t *testing.T) {
	c := mustParse(t, nil, nil)
	if c.Listen != "127.0.0.1:8080" || c.Redis != "" || c.Mode != "two-tier" || c.Ack != "memory" ||
		c.RedisExpiry != "key" || c.FlushInterval != 200*time.Millisecond ||
		c.MaxMemory != 1<<30 || c.RequestTimeout != 2*time.Second || c.Partitions != 257 ||
		c.HashSeed != nil || c.LogLevel != slog.LevelInfo || c.LogFormat != "text" ||
		c.OnCold != "allow" {
		t.Errorf("got %+v", c)
	}
	want := []config.Level{{Width: 100 * time.Millisecond, Count: 100},
		{Width: time.Second, Count: 100}, {Width: 10 * time.Second, Count: 60},
		{Width: time.Minute, Count: 150}, {Width: 15 * time.Minute, Count: 100}}
	if ns := c.Namespaces["default"]; !slices.Equal(ns.Levels, want) || ns.Exact != 64 ||
		ns.OnCold != "allow" || len(c.Namespaces) != 1 {
		t.Errorf("namespaces %+v", c.Namespaces)
	}
}

func TestPrecedence(t *testing.T) {
	path := writeFile(t, "node: file\n")
	for _, test := range []struct {
		name string
		args []string
		env  []string
		want string
	}{
		{"default", nil, nil, ""},
		{"file", []string{"--config", path}, nil, "file"},
		{"file named in the environment", nil, []string{"TWOTIER_CONFIG=" + path}, "file"},
		{"environment over file", []string{"--config=" + path}, []string{"TWOTIER_NODE=env"},
			"env"},
		{"flag over both", []string{"--config", path, "--node", "flag"},
			[]string{"TWOTIER_NODE=env"}, "flag"},
		{"flag that empties it", []string{"--node="}, []string{"TWOTIER_NODE=env"}, ""},
		{"empty variable is none", []string{"--config", path}, []string{"TWOTIER_NODE="}, "file"},
		{"last variable wins", nil, []string{"TWOTIER_NODE=a", "TWOTIER_NODE=env"}, "env"},
		{"foreign variables", nil, []string{"TWOTIER_PORT=tcp://10.0.0.1:80", "TWOTIER_SERVER=x",
			"NODE=y", "odd"}, ""},
	} {
		if c := mustParse(t, test.args, test.env); c.Node != test.want {
			t.Errorf("%s: node %q, want %q", test.name, c.Node, test.want)
		}
	}
}

func TestEverySetting(t *testing.T) {
	const text = "\ufeff# everything\r\n" + `
listen: "[::1]:0"
node:           n-1          # the first
redis:          "rediss://u:p@h:1/2?db="
redis-timeout:  300ms
redis-prefix:   Shop_2.eu-west
redis_expiry: field
redis-tls-ca:   "/etc/ca #1.pem"   # quoted
redis-tls-cert: c#1.pem
redis-tls-key: 'k.pem'
mode: redis
ack: redis
flush-interval: &pause 1s
drain-timeout: *pause
max-memory: 512MiB
on-cold: deny
partitions: 17
hash-seed: 0xff
log-level: debug
log-format: json
request-timeout: 3s
grpc-max-connection-age: 10m
grpc-max-connection-age-grace: 0s
insecure: true
hosts: [a.example, b.example]
`
	c := mustParse(t, []string{"--config", writeFile(t, text)}, nil)
	if c.Listen != "[::1]:0" || c.Node != "n-1" || c.Redis != "rediss://u:p@h:1/2?db=" ||
		c.RedisTimeout != 300*time.Millisecond || c.RedisExpiry != "field" ||
		c.RedisTLSCA != "/etc/ca #1.pem" || c.RedisTLSCert != "c#1.pem" ||
		c.RedisTLSKey != "k.pem" || c.RedisPrefix != "Shop_2.eu-west" ||
		c.GRPCMaxConnectionAge != 10*time.Minute || c.GRPCMaxConnectionAgeGrace != 0 ||
		c.Mode != "redis" || c.Ack != "redis" || c.FlushInterval != time.Second ||
		c.MaxMemory != 512<<20 || c.OnCold != "deny" || c.Partitions != 17 ||
		*c.HashSeed != 255 || c.LogLevel != slog.LevelDebug || c.LogFormat != "json" ||
		c.RequestTimeout != 3*time.Second || c.Namespaces["default"].OnCold != "deny" ||
		!c.Insecure || c.DrainTimeout != time.Second ||
		!slices.Equal(c.Hosts, []string{"a.example", "b.example"}) {
		t.Errorf("got %+v", c)
	}
}

func TestNamespaces(t *testing.T) {
	const text = `
namespaces:
  login:
    on-cold: deny
    max_keys: 5000
    hash_tags: true
  default: {ladder: "1s x 60, 1m x 120", exact: 10}
  a.b:
    ladder:
      - 100ms x 50
    exact: 0
  same:  # as the default one
`
	c := mustParse(t, []string{"--config", writeFile(t, text)}, nil)
	base := []config.Level{{Width: time.Second, Count: 60}, {Width: time.Minute, Count: 120}}
	for name, want := range map[string]config.Namespace{
		"default": {Levels: base, Exact: 10, OnCold: "allow"},
		"login":   {Levels: base, Exact: 10, OnCold: "deny", MaxKeys: 5000, HashTags: true},
		"a.b": {Levels: []config.Level{{Width: 100 * time.Millisecond, Count: 50}},
			OnCold: "allow"},
		"same": {Levels: base, Exact: 10, OnCold: "allow"},
	} {
		got := c.Namespaces[name]
		if !slices.Equal(got.Levels, want.Levels) || got.Exact != want.Exact ||
			got.OnCold != want.OnCold || got.MaxKeys != want.MaxKeys ||
			got.HashTags != want.HashTags {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if len(c.Namespaces) != 4 {
		t.Errorf("%d namespaces", len(c.Namespaces))
	}
}

func TestErrorsNameTheSetting(t *testing.T) {
	tests := []struct{ arg, want string }{
		{"--listen=8080", `--listen: "8080" is not HOST:PORT`},
		{"--listen=:http", `--listen: port "http"`},
		{"--listen=:70000", `--listen: port "70000"`},
		{"--node=a b", `--node: "a b" is not up to 64 letters`},
		{"--redis=localhost:6379",
			`--redis: redis URL "localhost:6379": want redis://`},
		{"--redis=http://u:secret@h", `--redis: redis URL "http:xxxxx@h": unknown`},
		{"--redis=redis://", `--redis: redis URL "redis://": a host is missing`},
		{"--redis-timeout=0s", "--redis-timeout: 0s is too short, want at least 1ms"},
		{"--redis-expiry=never", `--redis-expiry: "never" is not one of key, field or tairhash`},
		{"--redis-tls-ca=x", "--redis-tls-ca, --redis-tls-cert and --redis-tls-key need a " +
			"--redis URL with TLS"},
		{"--redis-tls-key=x", "give both or neither"},
		{"--mode=fast", `--mode: "fast" is not one of two-tier or redis`},
		{"--flush-interval=6s", "--max-lag: 10s is less than two flush intervals of 6s"},
		{"--mode=redis", "--mode: redis needs --redis"},
		{"--ack=tape", `--ack: "tape" is not one of memory, redis, replica or disk`},
		{"--ack=disk", "--ack: disk needs --redis"},
		{"--ack=redis", "--ack: redis needs --redis"},
		{"--ack-replicas=0", `--ack-replicas: "0" is not a number of replicas, 1 or more`},
		{"--drain-timeout=0", "--drain-timeout: 0 is too short, want at least 1ms"},
		{"--listen=:80 --insecure --admin=127.0.0.1:80", "--admin: --listen listens at :80 " +
			"already; name another port, or leave --admin out to have both there"},
		{"--flush-interval=200", `--flush-interval: "200" is not a duration, such as 200ms`},
		{"--flush-interval=-1s", `--flush-interval: "-1s" is not a duration`},
		{"--flush-interval=1us", "too short"},
		{"--max-memory=lots", `--max-memory: "lots" is not a size, such as 1GiB`},
		{"--max-memory=1k", `--max-memory: "1k" is not a size`},
		{"--max-memory=1KB", "too small, want at least 64KiB"},
		{"--on-cold=ask", `--on-cold: "ask" is not one of allow or deny`},
		{"--partitions=0", `--partitions: "0" is not a number from 1 to 65536`},
		{"--hash-seed=-1", `--hash-seed: "-1" is not a number`},
		{"--request-timeout=", `--request-timeout: "" is not a duration`},
		{"--log-level=loud", `--log-level: "loud" is not one of debug, info, warn or error`},
		{"--log-format=xml", `--log-format: "xml" is not one of text or json`},
		{"--print-config=maybe", `--print-config: "maybe" is neither true nor false`},
		{"--config=/does/not/exist", "--config: open /does/not/exist"},
		{"--unknown=1", "unknown flag: --unknown"},
		{"--node", "flag needs an argument: --node"},
		{"--gossip=:7946", "--gossip: a cluster needs --redis: that is where its nodes meet"},
		{"--gossip=:7946 --redis=redis://h", "--gossip: :7946 can be reached by others: set " +
			"--cluster-secret (better TWOTIER_CLUSTER_SECRET), the same on all nodes"},
		{"--gossip=10.0.0.1:7946 --redis=redis://h", "--gossip: 10.0.0.1:7946 can be reached by " +
			"others: set --cluster-secret (better TWOTIER_CLUSTER_SECRET), the same on all nodes"},
		{"--gossip=127.0.0.1:7946 --redis=redis://h --listen=:8080", "--listen: :8080 can be " +
			"reached by others, and takes messages of other nodes: set --cluster-secret (better " +
			"TWOTIER_CLUSTER_SECRET), the same on all nodes"},
		{"--gossip=h", `--gossip: "h" is not HOST:PORT, such as 127.0.0.1:8080`},
		{"--join=h:1,h:2", "--join: needs --gossip, such as --gossip 127.0.0.1:7946"},
		{"--gossip=127.0.0.1:1 --redis=redis://h --join=h:1,h",
			`--join: "h" is not HOST:PORT, such as 127.0.0.1:8080`},
		{"--gossip=127.0.0.1:1 --redis=redis://h --cluster-secret=short",
			"--cluster-secret: too short; at least 16 characters"},
		{"--listen=0.0.0.0:8080", "--listen: 0.0.0.0:8080 can be reached by others, who could " +
			"count, read and reset whatever they like: set --tokens FILE"},
		{"--listen=:8080 --insecure=false", "or --insecure if something else keeps them out"},
		{"--listen=:8080 --tokens=f --insecure",
			"--insecure: there are --tokens; give only one of them"},
		{"--redis-prefix=", `--redis-prefix: "" is not 1 to 32 letters, digits, dots, dashes`},
		{"--redis-prefix=a:b", `--redis-prefix: "a:b" is not 1 to 32 letters`},
		{"--redis-prefix={a}", `--redis-prefix: "{a}" is not 1 to 32 letters`},
		{"--redis-prefix=ä", `--redis-prefix: "ä" is not 1 to 32 letters`},
		{"--redis-prefix=" + strings.Repeat("x", 33), "is not 1 to 32 letters"},
		{"--grpc-max-connection-age=-1s", `--grpc-max-connection-age: "-1s" is not a duration`},
		{"--grpc-max-connection-age-grace=x", `-grace: "x" is not a duration`},
		{"--resp=0.0.0.0:6379", "--resp: 0.0.0.0:6379 can be reached by others"},
		{"--grpc=0.0.0.0:8081", "--grpc: 0.0.0.0:8081 can be reached by others"},
		{"--listen=127.0.0.1:80 --resp=127.0.0.1:80", "--resp: --listen listens at "},
		{"--admin=0.0.0.0:9", "--admin: 0.0.0.0:9 can be reached by others"},
		{"--tls-cert=c", "--tls-cert and --tls-key: give both or neither"},
		{"--tls-client-ca=c", "--tls-client-ca: needs --tls-cert and --tls-key"},
		{"--peer=127.0.0.1:1", "--peer: needs --gossip"},
		{"--gossip=127.0.0.1:1 --redis=redis://h --peer=:9",
			"--peer: :9 can be reached by others: set --cluster-secret"},
		{"--gossip=127.0.0.1:1 --redis=redis://h --tls-cert=c --tls-key=k",
			"--tls-cert: nodes that use TLS among themselves also need a secret"},
		{"--cluster-secret-file=f", "--cluster-secret: needs --gossip"},
		{"--gossip=127.0.0.1:1 --redis=redis://h --cluster-secret-file=f " +
			"--cluster-secret=0123456789abcdef", "give only one of them"},
		{"--redis-password-file=f", "--redis-password-file: needs --redis"},
		{"--hosts=a.example,b:80", `--hosts: "b:80" is not a host name (it has no port)`},
		{"--admin-token=short", "--admin-token: too short; at least 16 characters"},
	}
	for _, test := range tests {
		args := []string{test.arg}
		if strings.Contains(test.arg, " --") {
			args = strings.Fields(test.arg)
		}
		mustFail(t, args, nil, "", test.want)
	}
}

func TestErrorsOfFiles(t *testing.T) {
	tests := []struct{ text, want string }{
		{"listen: :1\nspeed: 9\n",
			`twotier.yaml:2:1: unknown key "speed"; twotier help serve lists them`},
		{"namespace: {}\n", `twotier.yaml:1:1: unknown key "namespace"; twotier help serve`},
		{"listen:\n",
			`twotier.yaml:1:1: listen has no value; write listen: VALUE, or listen: "" for none`},
		{"node: a\n\nnode: b\n", "twotier.yaml:3:1: node is set already in line 1"},
		{"redis-tls-ca: a\nredis_tls_ca: b\n",
			"twotier.yaml:2:1: redis-tls-ca is set already in line 1"},
		{"config: other\n", "twotier.yaml:1:1: config belongs on the command line"},
		{"print-config: true\n", "twotier.yaml:1:1: print-config belongs on the command line"},
		{"node: \"a\n", "twotier.yaml:2:1: found unexpected end of stream while scanning a " +
			"quoted scalar that begins in line 1, column 7"},
		{"node: \"a\" b\n", "twotier.yaml:1:11: did not find expected key"},
		{"listen: :1\n\tnode: a\n",
			"twotier.yaml:2:1: found a tab character that violates indentation"},
		{"node: a: b\n", "twotier.yaml:1:8: mapping values are not allowed in this context"},
		{"node: \x01\n", "twotier.yaml: "},
		{"node: *a\n", "twotier.yaml:1:7: no anchor of that name; quote a text that begins with *"},
		{"node = a\n",
			`twotier.yaml:1:1: the file is not made of lines such as "listen: 127.0.0.1:8080"`},
		{"- node\n", `twotier.yaml:1:1: the file is not made of lines`},
		{"node: a\n---\nnode: b\n", "twotier.yaml:2:1: a second document"},
		{"node: [a, b]\n", "twotier.yaml:1:7: node has one value, not a list of them"},
		{"node: {a: b}\n", "twotier.yaml:1:7: node has no settings of its own"},
		{"hosts: [a, [b]]\n", "twotier.yaml:1:12: hosts: an item of the list is not a text"},
		{"\n\nmode: fast\n", `twotier.yaml:3:7: mode: "fast" is not one of two-tier or redis`},
		{"insecure: yes\n", `twotier.yaml:1:11: insecure: "yes" is neither true nor false`},
		{"namespaces: a\n", "twotier.yaml:1:13: namespaces is not made of lines"},
		{"namespaces: {a: b}\n", "twotier.yaml:1:17: namespace a is not made of lines"},
		{"namespaces: {a: {}, a: {}}\n", "twotier.yaml:1:21: a is set already in line 1"},
		{"namespaces: {a: {size: 1}}\n",
			`twotier.yaml:1:18: unknown key "size"; a namespace has ladder, exact, exact-values, on-cold`},
		{"namespaces: {a/b: {}}\n", `twotier.yaml:1:14: namespace: "a/b" is not up to 64 letters`},
		{"namespaces: {\"\": {}}\n", "twotier.yaml:1:14: namespace: the name is empty"},
		{"namespaces: {a: {max-keys: -1}}\n",
			`twotier.yaml:1:28: namespaces.a.max-keys: "-1" is not a number of keys, 0 or more`},
		{"namespaces: {a: {on-cold: ask}}\n",
			`namespaces.a.on-cold: "ask" is not one of allow or deny`},
		{"namespaces: {a: {ladder: 1s}}\n",
			`namespaces.a.ladder: "1s" is not WIDTH x COUNT, such as 1s x 60`},
		{"namespaces: {a: {ladder: [1q x 6]}}\n", `namespaces.a.ladder: "1q" is not a duration`},
		{"namespaces: {a: {ladder: [1s x 0]}}\n",
			"namespaces.a.ladder: invalid ladder: level 0: 0 buckets, want 1 to 4096"},
		{"namespaces: {a: {ladder: [1m x 60, 1s x 60]}}\n", "namespaces.a.ladder: invalid ladder: " +
			"level 1: width 1s, want more than the finer level's 1m"},
		{"namespaces: {a: {ladder: [2s x 60, 15s x 60]}}\n",
			"level 1: width 15s is no multiple of the finer level's 2s; 14s and 16s are"},
		{"namespaces: {a: {exact: -1}}\n",
			`twotier.yaml:1:25: namespaces.a.exact: "-1" is not a number of events, 0 to 256`},
		{"namespaces: {a: {exact: 257}}\n", `"257" is not a number of events, 0 to 256`},
		{"namespaces: {a: {exact: all}}\n", `"all" is not a number of events, 0 to 256`},
		{strings.Repeat("# long\n", 200_000), "twotier.yaml is longer than 1MiB"},
	}
	for _, test := range tests {
		mustFail(t, []string{"--config", writeFile(t, test.text)}, nil, "", test.want)
	}
}

// TestDocumentedExample parses the file of settings that docs/configuration.md shows.
func TestDocumentedExample(t *testing.T) {
	_, after, found := strings.Cut(must.Read(t, "../../docs/configuration.md"), "```yaml\n")
	text, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("the page has no example of a file")
	}
	c := mustParse(t, []string{"--config", writeFile(t, text)}, nil)
	if c.Namespaces["login"].MaxKeys != 1_000_000 || len(c.Namespaces["default"].Levels) < 3 {
		t.Errorf("got %+v", c.Namespaces)
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	mustFail(t, []string{"--ack=x", "--listen=y"}, []string{"TWOTIER_MAX_MEMORY=z"}, "",
		"--ack: ", "--listen: ", "(from TWOTIER_MAX_MEMORY)")
	mustFail(t, []string{"--config", writeFile(t, "a: 1\nb: 2\nack: x\n")}, nil, "",
		`unknown key "a"`, `unknown key "b"`)
}

func TestBadDefaultIsReportedOnce(t *testing.T) {
	_, err := config.Parse([]string{"--config",
		writeFile(t, "namespaces: {default: {on-cold: x, ladder: y}, a: {on-cold: deny}}\n")}, nil)
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, want two lines", err)
	}
	if _, err = config.Parse([]string{"--on-cold=x"}, nil); err == nil ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line", err)
	}
}

// TestSyntaxErrorsHoldNoText checks that errors about a file with broken YAML show no password.
func TestSyntaxErrorsHoldNoText(t *testing.T) {
	for _, text := range []string{
		"redis rediss://me:hunter2@h:1\nack: redis\n", "cluster-secret: \"hunter2\n",
		"admin-token: @hunter2\n",
		"admin-token: [hunter2\nack: redis\n", "admin-token: *hunter2 x\n",
		"cluster-secret: %hunter2\n",
	} {
		mustFail(t, []string{"--config", writeFile(t, text)}, nil, "hunter2")
	}
}

func TestPrint(t *testing.T) {
	path := writeFile(t, "ack: redis\nhosts: [a, b]\nnamespaces: {x: {on-cold: "+
		"deny}}\nredis-tls-ca: \" a#\"\n")
	args := []string{"--config", path, "--listen", ":0", "--tokens", "f", "--redis",
		"rediss://me:hunter2@h:1/0", "--admin-token", "hunter2hunter2hunter2"}
	c := mustParse(t, args, []string{"TWOTIER_NODE=n1"})
	var out strings.Builder
	must.Succeed(t, c.Print(&out))
	lines := strings.Split(out.String(), "\n")
	for _, want := range []string{
		"# read from " + path,
		"listen: :0 # flag",
		"node: n1 # environment TWOTIER_NODE",
		"redis: rediss://me:xxxxx@h:1/0 # flag",
		"redis-tls-ca: ' a#' # file " + path + ":4:15",
		"ack: redis # file " + path + ":1:6",
		"mode: two-tier # default",
		`redis-tls-key: "" # default`,
		"partitions: 257 # default",
		"hosts: [a, b] # file " + path + ":2:8",
		"namespaces:",
		"default:",
		"ladder: [100ms x 100, 1s x 100, 10s x 60, 1m x 150, 15m x 100] # default",
		"exact: 64 # default",
		"x:",
		"on-cold: deny # file " + path + ":3:27",
	} {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.Join(strings.Fields(l), " ") == strings.Join(strings.Fields(want), " ")
		}) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the password is in\n%s", out.String())
	}
}

func TestPrintCanBeReadBack(t *testing.T) {
	path := writeFile(t, "ack: redis\nnamespaces: {x: {on-cold: deny}}\n")
	c := mustParse(t, []string{"--config", path, "--redis-tls-ca", " #x", "--node", "null",
		"--redis", "rediss://h:1"}, nil)
	var first, second strings.Builder
	must.Succeed(t, c.Print(&first))
	again := mustParse(t, []string{"--config", writeFile(t, first.String())}, nil)
	if again.RedisTLSCA != " #x" || again.Ack != "redis" || again.Node != "null" ||
		again.Namespaces["x"].OnCold != "deny" {
		t.Errorf("got %+v", again)
	}
	must.Succeed(t, again.Print(&second))
	if strings.Count(first.String(), "\n") != strings.Count(second.String(), "\n") {
		t.Errorf("%s\nbecame\n%s", first.String(), second.String())
	}
}

// TestListenersOverlap checks that two flags that name one address are refused, and others are not.
func TestListenersOverlap(t *testing.T) {
	for _, test := range []struct{ listen, admin, peer, gossip, blamed string }{
		{listen: "127.0.0.1:8080", admin: "127.0.0.1:8080", blamed: "--admin: --listen"},
		{listen: "localhost:8080", admin: "127.0.0.1:8080", blamed: "--admin: --listen"},
		{listen: "node.example:8080", admin: "node.example:8080", blamed: "--admin: --listen"},
		{listen: "127.0.0.1:8080", admin: ":8080", blamed: "--admin: --listen"},
		{listen: "0.0.0.0:8080", admin: "127.0.0.1:8080", blamed: "--admin: --listen"},
		{listen: "[::]:8080", peer: "127.0.0.1:8080", blamed: "--peer: --listen"},
		{listen: "127.0.0.1:1", admin: "127.0.0.1:2", peer: "127.0.0.1:2",
			blamed: "--peer: --admin"},
		{listen: "127.0.0.1:7946", gossip: "127.0.0.1:7946", blamed: "--gossip: --listen"},
		{listen: "127.0.0.1:0", admin: "127.0.0.1:0", peer: "127.0.0.1:0", gossip: "127.0.0.1:0"},
		{listen: "127.0.0.1:8080", admin: "127.0.0.2:8080", peer: "127.0.0.1:8081"},
		{listen: "0.0.0.0:8080", admin: "[::1]:8080"},
		{listen: "node.example:8080", admin: "127.0.0.1:8080"}, // names are not resolved
	} {
		gossip := cmp.Or(test.gossip, "127.0.0.1:9")
		_, err := config.Parse([]string{
			"--listen", test.listen, "--admin", test.admin, "--peer", test.peer, "--gossip", gossip,
			"--redis", "redis://h", "--insecure", "--cluster-secret", "0123456789abcdef",
		}, nil)
		if (err == nil) != (test.blamed == "") ||
			err != nil && !strings.Contains(err.Error(), test.blamed+" listens at ") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestParseSecrets(t *testing.T) {
	const text = "# of the cluster\r\n\n  0123456789abcdef \nfedcba9876543210\n"
	got, err := config.ParseSecrets([]byte(text))
	if err != nil || len(got) != 2 || string(got[0]) != "0123456789abcdef" ||
		string(got[1]) != "fedcba9876543210" {
		t.Errorf("got %q, %v", got, err)
	}
	for text, want := range map[string]string{"": "it holds no secret",
		"\nshort\n": "line 2: too short", "# x": "it holds no secret"} {
		if _, err := config.ParseSecrets([]byte(text)); err == nil ||
			!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "short\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestAllHosts(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "",
		"--hosts=a,b":                        "a b",
		"--advertise=n.example:80":           "n.example",
		"--hosts=a --advertise=n.example:80": "a n.example",
		"--listen=:80 --insecure --hosts=a":  "a",
		"--listen=:80 --insecure --hosts= --advertise=n.example:80":  "", // names are not checked
		"--listen=:80 --insecure --hosts=a --advertise=n.example:80": "a n.example",
	} {
		c := mustParse(t, strings.Fields(args), nil)
		if got := strings.Join(c.AllHosts(), " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
