package faulttest

import (
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
		"COMMAND":          {commands("COMMAND", "COMMAND DOCS")},
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
