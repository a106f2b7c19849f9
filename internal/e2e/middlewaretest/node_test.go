package middlewaretest

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/gated"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/npm"
	"twotier.dev/twotier/internal/testing/proctest"
)

// TestNode runs the examples for Node.js.
func TestNode(t *testing.T) {
	t.Parallel()
	dir := installNode(t)
	node := program.Serve(t, proctest.Options{})
	for _, f := range pair(t, "js", "express", "fastify", "koa", "hono") {
		t.Run(f.name, func(t *testing.T) {
			for _, v := range gated.Variants(f.name, node) {
				address := freeAddress(t)
				_, port, _ := net.SplitHostPort(address)
				text := replace(t, f.text, `{ limits: { "1m": 3 }, onError: "allow"`,
					strings.TrimSuffix(nodeOptions(t, v.Options), "}"))
				file := f.name + "-" + v.Name + ".mjs"
				must.Write(t, filepath.Join(dir, file), replace(t, text, "3000", port))
				v.Check(t, start(t, dir, address, nil, "node", file))
			}
		})
	}
}

// nodeOptions returns the options of a variant as an object of JavaScript.
func nodeOptions(t *testing.T, o gated.Options) string {
	t.Helper()
	m := map[string]any{"limits": map[string]int{"1m": 3}, "onError": "allow", "url": o.Server,
		"ns": o.Namespace, "wait": 5000}
	if o.Namespace == "" {
		delete(m, "ns")
	}
	if o.Name != "" {
		m["name"] = o.Name
	}
	if o.Deny {
		m["onError"] = "deny"
	}
	if o.Trusted != "" {
		m["trustedProxies"] = []string{o.Trusted}
	}
	text, err := json.Marshal(m)
	must.Succeed(t, err)
	return string(text)
}

// installNode returns a directory with the frameworks and the package of this tree.
func installNode(t *testing.T) (dir string) {
	t.Helper()
	dir = npm.Install(t, filepath.Join("testdata", "node"))
	must.Succeed(t, os.Symlink(top(t, "clients", "node"),
		filepath.Join(dir, "node_modules", "twotier")))
	return dir
}
