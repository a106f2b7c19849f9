package middlewaretest

import (
	"bytes"
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
