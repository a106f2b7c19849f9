package middlewaretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/gated"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/npm"
	"twotier.dev/twotier/internal/testing/proctest"
)

// program is the server that the middleware asks.
var program = proctest.NewProgram()

func TestMain(m *testing.M) { proctest.Main(m, program, 0) }

// top returns the absolute path of a file of this module.
func top(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"..", "..", ".."}, parts...)...))
	must.Succeed(t, err)
	return path
}

// examples returns the programs in a language on the page.
func examples(t *testing.T, language string) (list []string) {
	t.Helper()
	for i, block := range strings.Split(must.Read(t, top(t, "docs", "middleware.md")), "\n```") {
		if text, ok := strings.CutPrefix(block, language+"\n"); ok && i%2 == 1 {
			list = append(list, text+"\n")
		}
	}
	return list
}

// framework is one framework and its example.
type framework struct{ name, text string }

// pair returns the examples in a language, whose text each mention the name of their framework.
func pair(t *testing.T, language string, names ...string) (all []framework) {
	t.Helper()
	list := examples(t, language)
	if len(list) != len(names) {
		t.Fatalf("the page has %d examples in %s, want those of %v", len(list), language, names)
	}
	for i, text := range list {
		if !strings.Contains(strings.ToLower(text), names[i]) {
			t.Fatalf("example %d is not for %s:\n%s", i, names[i], text)
		}
		all = append(all, framework{names[i], text})
	}
	return all
}

// replace replaces a part of an example, which must be there.
func replace(t *testing.T, text, part, by string) string {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Fatalf("the example has no %q:\n%s", part, text)
	}
	return strings.ReplaceAll(text, part, by)
}

// nextPort is the port to try next. It is below the ports that systems choose for connections and
// for port 0, so that nobody else takes it before a server listens.
var nextPort atomic.Int64

func init() { nextPort.Store(10_000 + rand.Int64N(20_000)) }

// freeAddress returns an address that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", nextPort.Add(1)))
		if err == nil {
			defer ln.Close()
			return ln.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start starts a server in a directory and waits until it listens at the address.
func start(t *testing.T, dir, address string, env []string, command ...string) (base string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	server, err := child.Start(cmd)
	must.Succeed(t, err)
	t.Cleanup(func() {
		_ = server.Kill() // it may have ended
		<-server.Done()
		if t.Failed() {
			t.Logf("%v: %s", command, out.Bytes())
		}
	})
	proctest.UntilNil(t, fmt.Sprint(command, " listens"), func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return "http://" + address
}

// TestGo checks net/http and fasthttp.
func TestGo(t *testing.T) {
	t.Parallel()
	node := program.Serve(t, proctest.Options{})
	for _, v := range gated.Variants("net-http", node) {
		g, trusted := gated.Gate(t, &v)
		s := http.Server{Handler: g.Middleware(client.ByAddress(trusted...))(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		go func() { _ = s.Serve(ln) }()
		t.Cleanup(func() { must.Succeed(t, s.Close()) })
		v.Check(t, "http://"+ln.Addr().String())
	}
	for _, v := range gated.Variants("fasthttp", node) {
		g, trusted := gated.Gate(t, &v)
		s := fasthttp.Server{Handler: g.FastHandler(client.FastByAddress(trusted...),
			func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("hello") })}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must.Succeed(t, err)
		go func() { _ = s.Serve(ln) }()
		t.Cleanup(func() { must.Succeed(t, s.Shutdown()) })
		v.Check(t, "http://"+ln.Addr().String())
	}
}

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

// djangoRest is the rest of a Django project in one file.
const djangoRest = `
from django.http import HttpResponse
from django.urls import path

SECRET_KEY, ALLOWED_HOSTS, ROOT_URLCONF = "secret", ["*"], __name__

async def hello(request):
    return HttpResponse("hello")

urlpatterns = [path("", hello)]
`

// djangoApp is its application, which reads the settings.
const djangoApp = `
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
asgi, wsgi = get_asgi_application(), get_wsgi_application()
`

// TestPython runs the examples for Python, in the servers that people use.
func TestPython(t *testing.T) {
	t.Parallel()
	python := findPython(t, "fastapi, flask, django, uvicorn, gunicorn")
	node := program.Serve(t, proctest.Options{})
	uvicorn := []string{"uvicorn", "--no-proxy-headers", "--no-access-log"}
	gunicorn := []string{"gunicorn", "--preload", "--threads", "4"}
	all := pair(t, "python", "fastapi", "starlette", "flask", "middleware")
	for _, c := range []struct {
		framework
		server []string
		app    string
	}{
		{all[0], uvicorn, "app:app"}, {all[1], uvicorn, "app:app"}, {all[2], gunicorn, "app:app"},
		{framework{"django-asgi", all[3].text}, uvicorn, "app:asgi"},
		{framework{"django-wsgi", all[3].text}, gunicorn, "app:wsgi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range gated.Variants(c.name, node) {
				dir, address := t.TempDir(), freeAddress(t)
				writePython(t, dir, c.text, v.Options)
				command := append([]string{python, "-m"}, c.server...)
				if host, port, _ := strings.Cut(address, ":"); c.server[0] == "uvicorn" {
					command = append(command, "--host", host, "--port", port, c.app)
				} else {
					command = append(command, "--bind", address, c.app)
				}
				v.Check(t, start(t, dir, address, []string{"PYTHONDONTWRITEBYTECODE=1",
					"PYTHONPATH=" + top(t, "clients", "python")}, command...))
			}
		})
	}
}

// writePython writes an example with the options of a variant.
func writePython(t *testing.T, dir, text string, o gated.Options) {
	t.Helper()
	app := filepath.Join(dir, "app.py")
	if !strings.Contains(text, "MIDDLEWARE") {
		must.Write(t, app, replace(t, text, `limits={"1m": 3}, on_error="allow"`,
			"**"+pythonOptions(t, o)))
		return
	}
	text = replace(t, text, `{"limits": {"1m": 3}, "on_error": "allow"}`, pythonOptions(t, o))
	must.Write(t, filepath.Join(dir, "settings.py"), text+djangoRest)
	must.Write(t, app, djangoApp)
}

// pythonOptions returns the options of a variant as a dict of Python.
func pythonOptions(t *testing.T, o gated.Options) string {
	t.Helper()
	m := map[string]any{"limits": map[string]int{"1m": 3}, "on_error": "allow", "url": o.Server,
		"wait": 5}
	if o.Namespace != "" {
		m["ns"] = o.Namespace
	}
	if o.Name != "" {
		m["name"] = o.Name
	}
	if o.Deny {
		m["on_error"] = "deny"
	}
	if o.Trusted != "" {
		m["trusted_proxies"] = []string{o.Trusted}
	}
	text, err := json.Marshal(m)
	must.Succeed(t, err)
	return string(text)
}

// findPython returns a Python that has some modules, or skips the test.
func findPython(t *testing.T, modules string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+modules).Run() == nil {
			return python
		}
	}
	t.Skip("frameworks: no python3 has them (Debian: gunicorn python3-django python3-fastapi " +
		"python3-flask python3-uvicorn)")
	return ""
}
