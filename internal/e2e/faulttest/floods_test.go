package faulttest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/costtable"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// manyRules writes a document of rules that is almost as long as it may be.
func manyRules(t *testing.T) (path, text string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := 0; b.Len() < twotier.MaxRuleText-100; i++ {
		fmt.Fprintf(&b, "- {name: r%d, limits: [5/1m, 9/1h, 99/24h]}\n", i)
	}
	path = filepath.Join(t.TempDir(), "rules.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path, b.String()
}

const costsToken = "a token of an administrator"

// get and send return requests over HTTP that end the connection.
func get(target string) string {
	return httpHead(costsToken, "GET "+target, "Connection: close\r\n")
}

func send(request, media, body string) string {
	return httpHead(costsToken, request, fmt.Sprintf("Connection: close\r\nIf-Match: *\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n", media, len(body))) + body
}

// commands returns a transaction or commands over RESP that end the connection.
func commands(lines ...string) string {
	return strings.Join(lines, "\r\n") + "\r\nQUIT\r\n"
}

// costly returns the most expensive requests for each call in the table of costs, apart from those
// of gRPC and between nodes, at which crowds come in other tests.
func costly(rules string) map[string][]string {
	const json = "application/json"
	long := strings.Repeat("k", 250)
	ops := manyWindows(1 << 20)
	all := map[string][]string{
		"/v1/batch":   {send("POST /v1/batch", json, ops)},
		"/json":       {send("POST /json", json, `{"domain":"d"}`)},
		"/v1/explain": {get("/v1/explain?key=" + long)},
		"/v1/rules": {get("/v1/rules"), get("/v1/rules?limits=true"),
			get("/v1/rules?version=1"), get("/v1/rules?history=true"),
			send("PUT /v1/rules", "application/yaml", rules)},
		"/v1/backtest":     {send("POST /v1/backtest", json, fmt.Sprintf(`{"rules":%q}`, rules))},
		"/v1/top":          {get("/v1/top?n=1000")},
		"/v1/bans":         {get("/v1/bans?n=1000")},
		"/v1/series":       {get("/v1/series?window=24h&key=" + long)},
		"/v1/count":        {get("/v1/count?window=24h&key=" + long)},
		"/v1/holds":        {get("/v1/holds?key=" + long)},
		"/v1/forward-auth": {get("/v1/forward-auth?rule=r1")},
		"/v1/cluster":      {get("/v1/cluster?owners=true&nodes=true")},
		"/assets/":         {get("/assets/dashboard.js")},
		"/debug/pprof/":    {get("/debug/pprof/heap")},
		"TT.EXPLAIN":       {commands("TT.EXPLAIN " + long)},
		"TT.TOP":           {commands("TT.TOP 1000")},
		"TT.SERIES":        {commands("TT.SERIES " + long + " 24h")},
		"EXEC":             {commands("MULTI", strings.Repeat("TT.ADD k\r\n", 1000), "EXEC")},
		"COMMAND":          {commands("COMMAND")},
	}
	for _, call := range []string{"/healthz", "/readyz", "/metrics", "/v1/events", "/",
		"/openapi.json"} {
		all[call] = []string{get(call)}
	}
	for _, call := range []string{"add", "acquire", "distinct", "reset", "unban", "settle", "renew",
		"admin/mode", "demo"} {
		all["/v1/"+call] = []string{send("POST /v1/"+call, json, `{"key":"`+long+`"}`)}
	}
	for _, call := range []string{"TT.ACQUIRE", "TT.ADD", "TT.COUNT", "TT.DISTINCT", "TT.RESET",
		"TT.SETTLE", "TT.RELEASE", "TT.RENEW", "CL.THROTTLE", "MULTI", "DISCARD", "WATCH",
		"UNWATCH", "HELLO", "AUTH", "PING", "ECHO", "CLIENT", "SELECT", "INFO", "CONFIG", "QUIT",
		"RESET"} {
		all[call] = []string{commands(strings.Repeat(call+" "+long+" 1m\r\n", 100))}
	}
	return all
}

// TestFloodsOfEveryCall floods a node with each call in the table of costs, while it has as many
// rules as it may: it stays within its memory and serves other clients meanwhile.
func TestFloodsOfEveryCall(t *testing.T) {
	takesLong(t)
	t.Parallel()
	path, rules := manyRules(t)
	node := program.Serve(t, proctest.Options{Env: []string{"TWOTIER_ADMIN_TOKEN=" + costsToken}},
		"--max-memory", fmt.Sprint(attackedMemory), "--rules", path, "--resp", "127.0.0.1:0",
		"--admin", "127.0.0.1:0")
	others := proctest.StartOrdinary(t, node)
	for i := range 1000 { // keys for the lists, and counts for the explanations
		node.Post("/v1/add", fmt.Sprintf(`{"key":"%s%03d"}`, strings.Repeat("k", 247), i))
	}
	calls := costly(rules)
	for _, call := range costtable.Calls(t, "../../../docs/security.md") {
		if strings.Contains(call, ".v") || call == "/peer" {
			continue
		}
		if len(calls[call]) == 0 {
			t.Errorf("no request floods %s", call)
		}
	}
	const most = attackedMemory*13/10 + 64<<20
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		for _, request := range calls[call] {
			flood(t, addressOf(node, call, request), request)
			others.Answers(20)
			if peak := node.Memory().Peak; peak > most {
				measuresMemory(t)
				t.Fatalf("%d MiB after a flood of %.60q, want at most %d", peak>>20, request,
					most>>20)
			}
		}
	}
	t.Logf("at the most %d MiB of %d; %s", node.Memory().Peak>>20, most>>20, others.Stop())
}

// addressOf returns the address that serves a request of a call.
func addressOf(node *proctest.Process, call, request string) string {
	switch {
	case call[0] != '/':
		return node.Resp
	case strings.HasPrefix(request, "PUT"), call == "/v1/backtest", call == "/v1/admin/mode",
		strings.HasPrefix(call, "/debug"):
		return node.Admin
	}
	return node.Listen
}

// flood sends a request over many connections at a time, and reads the answers.
func flood(t *testing.T, to, request string) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for range 60 {
		conn, err := net.Dial("tcp", to)
		must.Succeed(t, err)
		asking.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(proctest.Patience))
			if _, err := io.WriteString(conn, request); err == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
		})
	}
}

// TestFault19FloodWithoutRedis floods a node without Redis that has little memory. Keys at their
// limits stay there, bans, holds and settlements stay what they are, new keys count again as soon
// as the flood is over, and the log names the memory that is full.
func TestFault19FloodWithoutRedis(t *testing.T) {
	t.Parallel()
	conf := must.File(t, "twotier.yaml", "namespaces: {few: {max-keys: 100}}\n")
	b := &bed{Cluster: &proctest.Cluster{T: t, Ledger: proctest.NewLedger()}}
	b.node = program.Serve(t, proctest.Options{MayComplain: true}, "--partitions", "8",
		"--max-memory", "2MiB", "--config", conf, "--rules", must.File(t, "rules.yaml",
			"rules: [{name: login, limits: [3/1h], ban: 24h}]\n"))
	b.floodNamespace("few", 300, 100) // before memory is full, which refuses keys of any namespace
	b.fillLimits(20)
	used := b.useCompanions(20)
	refused, waves := int64(0), 0
	for end := time.Now().Add(30 * time.Second); !strings.Contains(b.node.Log.String(),
		"memory is full: the keys that have counted least"); waves++ {
		n, _ := b.flood(fmt.Sprint("flood-", waves), 2000)
		refused += n
		if time.Now().After(end) {
			t.Fatal("memory does not get full")
		}
	}
	b.floodTwice(10_000)
	b.atLimits(20)
	b.keepCompanions(used)
	began := time.Now()
	proctest.Until(t, "new keys count again", func() bool {
		status, _, err := b.node.Post("/v1/add",
			fmt.Sprintf(`{"key":"after-%d"}`, time.Now().UnixNano()))
		return err == nil && status == 200
	})
	t.Logf("%d new keys, %d refused with 429; new ones counted again %v after the flood",
		waves*2000, refused, time.Since(began).Round(time.Millisecond))
	b.atLimits(20)
}

// fillLimits brings some keys to their limits.
func (b *bed) fillLimits(n int) {
	b.T.Helper()
	for i := range n {
		if a := b.acquireLimited(i, 5); !a.Allowed {
			b.T.Fatalf("limited-%d: %+v", i, a)
		}
	}
}

// atLimits checks that these keys are still at their limits.
func (b *bed) atLimits(n int) {
	b.T.Helper()
	for i := range n {
		if a := b.acquireLimited(i, 1); a.Allowed {
			b.T.Errorf("limited-%d is beyond its limit, and allowed", i)
		}
	}
}

func (b *bed) acquireLimited(i, n int) (a proctest.Answer) {
	b.T.Helper()
	b.ask("/v1/acquire",
		fmt.Sprintf(`{"key":"limited-%d","n":%d,"limits":[{"window":"1h","max":5}]}`, i, n), &a)
	return a
}

// floodNamespace counts n new keys in a namespace with a lower max-keys, all at once: one by one,
// on a slow machine, the first would be idle and make room for the last.
func (b *bed) floodNamespace(ns string, n, most int) {
	b.T.Helper()
	ops := make([]string, n)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","ns":%q,"key":"k%d"}`, ns, i)
	}
	var a struct {
		Results []struct{ Error *struct{ Status int } }
	}
	err := b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &a)
	if err != nil || len(a.Results) != n {
		b.T.Fatalf("%v, %d results", err, len(a.Results))
	}
	counted := 0
	for i, r := range a.Results {
		switch {
		case r.Error == nil:
			counted++
		case r.Error.Status != 429:
			b.T.Errorf("k%d: %d", i, r.Error.Status)
		}
	}
	if counted < most || counted == n {
		b.T.Errorf("%d of %d keys counted in a namespace of %d", counted, n, most)
	}
}

// floodTwice counts two events of each of n new keys. Each has another key forgotten.
func (b *bed) floodTwice(n int) {
	b.T.Helper()
	wave := 0
	proctest.Until(b.T, "many new keys count", func() bool {
		ops := make([]string, 1000)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"add","key":"twice-%d-%d","n":2}`, wave, i)
		}
		var a struct{ Results []proctest.Answer }
		must.Succeed(b.T, b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &a))
		for _, r := range a.Results {
			if r.Error == nil {
				n--
			}
		}
		wave++
		return n <= 0
	})
}

// companions are the settled holds and the counts of some keys that also have an open hold, and a
// ban.
type companions struct {
	holds  []string
	counts []int64
}

// companionHold is an acquire of a key that has room for one open hold.
const companionHold = `{"key":"companion-%d","n":%d,"hold":"1h","limits":[{"window":"24h",` +
	`"max":1000},{"concurrent":1}]}`

// useCompanions settles a hold of each of some keys, opens another one, and has the key banned.
func (b *bed) useCompanions(n int) (used companions) {
	b.T.Helper()
	for i := range n {
		var a struct{ Hold string }
		b.ask("/v1/acquire", fmt.Sprintf(companionHold, i, 10), &a)
		b.ask("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":8}`, a.Hold), nil)
		used.holds = append(used.holds, a.Hold)
		if !b.allows(fmt.Sprintf(companionHold, i, 10)) {
			b.T.Fatalf("companion-%d has no room for a hold", i)
		}
		b.allows(fmt.Sprintf(`{"key":"companion-%d","rules":["login"]}`, i))
		used.counts = append(used.counts, b.countOf(i))
	}
	return used
}

// keepCompanions checks that the keys are still banned, their second holds open, and their first
// ones settled.
func (b *bed) keepCompanions(used companions) {
	b.T.Helper()
	for i, hold := range used.holds {
		b.ask("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":8}`, hold), nil)
		if got := b.countOf(i); got != used.counts[i] {
			b.T.Errorf("companion-%d: %d events after another settlement, want %d", i, got,
				used.counts[i])
		}
		if b.allows(fmt.Sprintf(companionHold, i, 1)) {
			b.T.Errorf("companion-%d has room for a second hold", i)
		}
		var a struct{ Bans []struct{ Started bool } }
		b.ask("/v1/acquire", fmt.Sprintf(`{"key":"companion-%d","rules":["login"]}`, i), &a)
		if len(a.Bans) != 1 || a.Bans[0].Started {
			b.T.Errorf("companion-%d is not banned any more: %+v", i, a.Bans)
		}
	}
}

// ask posts a request, again for as long as no memory is free for its keys.
func (b *bed) ask(path, body string, into any) {
	b.T.Helper()
	proctest.Until(b.T, path+" is answered", func() bool {
		status, answer, err := b.node.Post(path, body)
		if err != nil || status != 200 {
			return false
		}
		if into != nil {
			must.Succeed(b.T, json.Unmarshal(answer, into))
		}
		return true
	})
}

func (b *bed) allows(acquire string) bool {
	b.T.Helper()
	var a struct{ Allowed bool }
	b.ask("/v1/acquire", acquire, &a)
	return a.Allowed
}

// countOf returns the events of a key with companions.
func (b *bed) countOf(i int) (n int64) {
	b.T.Helper()
	proctest.Until(b.T, "a count is answered", func() bool {
		a, err := b.node.TryCount(fmt.Sprintf("key=companion-%d&window=24h", i))
		if err == nil {
			n = a.Counts[0].Count
		}
		return err == nil
	})
	return n
}
