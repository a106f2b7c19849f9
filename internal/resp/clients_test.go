package resp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/testca"
)

// clients enables the tests of clients in other languages, which take a while to install.
var clients = flag.Bool("clients", false, "test the clients of other languages, too")

// secured is a node with tokens and a certificate.
type secured struct {
	host, port, token string
	ca                string // file
	tls               *tls.Config
}

func serveSecured(t *testing.T) secured {
	t.Helper()
	ca, err := testca.New()
	must.Succeed(t, err)
	cert, key, err := ca.Issue(2, time.Now().Add(time.Hour))
	must.Succeed(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	must.Succeed(t, err)
	texts, store := tokensOf(t, map[string]string{"app": "count,read"})
	server := serve(t, resp.Options{Service: newService(t), Tokens: store,
		Limits: listener.Limits{TLS: &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12}}})
	s := secured{token: texts["app"], ca: filepath.Join(t.TempDir(), "ca.pem"),
		tls: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}
	s.host, s.port, _ = strings.Cut(server.Addr().String(), ":")
	must.Succeed(t, os.WriteFile(s.ca, ca.PEM, 0o600))
	return s
}

// environment returns the variables a script needs to connect.
func (s *secured) environment() []string {
	return append(os.Environ(), "HOST="+s.host, "PORT="+s.port, "TOKEN="+s.token, "CA="+s.ca)
}

// TestGoRedis uses go-redis over TLS and with a token, with both versions of the protocol.
func TestGoRedis(t *testing.T) {
	s := serveSecured(t)
	for protocol, key := range map[int]string{2: "go2", 3: "go3"} {
		c := redis.NewClient(&redis.Options{Addr: s.host + ":" + s.port, Protocol: protocol,
			Password: s.token, ClientName: "from-go", TLSConfig: s.tls, MaxRetries: -1})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		pipe := c.Pipeline()
		cmds := []*redis.Cmd{
			pipe.Do(ctx, "TT.ACQUIRE", key, "LIMIT", "30s", 2), pipe.Do(ctx, "TT.ADD", key, "N", 3),
			pipe.Do(ctx, "TT.COUNT", key, "30s", "24h"),
			pipe.Do(ctx, "CL.THROTTLE", key, 15, 30, 60),
			pipe.Do(ctx, "TT.ADD", key, "N", "x"),
		}
		_, err := pipe.Exec(ctx)
		if err == nil || !strings.HasPrefix(err.Error(), "ERR n: want 1 to 2147483647") {
			t.Errorf("an error arrives as %v", err)
		}
		for i, want := range []any{[]any{int64(1), int64(0), int64(1), int64(1)}, "OK",
			[]any{int64(4), int64(4)},
			[]any{int64(0), int64(16), int64(11), int64(-1), int64(32)}} {
			if got := cmds[i].Val(); !reflect.DeepEqual(got, want) {
				t.Errorf("RESP%d: %v: got %v, want %v", protocol, cmds[i].Args(), got, want)
			}
		}
		transaction := c.TxPipeline()
		for range 2 {
			transaction.Do(ctx, "TT.ACQUIRE", key, "LIMIT", "30s", 6)
		}
		both, err := transaction.Exec(ctx)
		for i, want := range []any{[]any{int64(1), int64(0), int64(6), int64(0)},
			[]any{int64(0), int64(30000), int64(6), int64(0)}} {
			if got := both[i].(*redis.Cmd).Val(); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("RESP%d: in a transaction: got %v, %v, want %v", protocol, got, err, want)
			}
		}
		if name, err := c.ClientGetName(ctx).Result(); err != nil || name != "from-go" {
			t.Errorf("the connection is called %q, %v", name, err)
		}
	}
}

// TestRedisCLI uses redis-cli over TLS, as a user types it.
func TestRedisCLI(t *testing.T) {
	s := serveSecured(t)
	cli := needed(t, "redis-cli")
	for _, test := range []struct{ options, command, want string }{
		{"-2", "TT.ACQUIRE k LIMIT 30s 2", "1\n0\n1\n1\n"},
		{"-3", "TT.COUNT k 30s BOUNDS", "1\n1\n1\n"},
		{"-3", "TT.TOP", "default\nk\n1\n"},
		{"-2", "TT.ADD k N x", "ERR n: want 1 to 2147483647, or -1 to -2147483647 to take back\n\n"},
	} {
		args := append([]string{"-h", s.host, "-p", s.port, "--tls", "--cacert", s.ca,
			test.options, "--no-auth-warning", "-a", s.token}, strings.Fields(test.command)...)
		out, err := exec.CommandContext(t.Context(), cli, args...).CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) || string(out) != test.want {
			t.Errorf("%s %s: got %q, %v, want %q", test.options, test.command, out, err, test.want)
		}
	}
}

// TestRedisBenchmark lets redis-benchmark drive a node, with pipelines and without.
func TestRedisBenchmark(t *testing.T) {
	service := newService(t)
	server := serve(t, resp.Options{Service: service})
	host, port, _ := strings.Cut(server.Addr().String(), ":")
	for _, pipeline := range []string{"1", "16"} {
		cmd := exec.CommandContext(t.Context(), needed(t, "redis-benchmark"), "-h", host,
			"-p", port, "-c", "20", "-n", "4000", "-r", "100", "-P", pipeline, "--csv",
			"TT.ACQUIRE", "key:__rand_int__", "LIMIT", "1m", "1000000")
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(`"TT.ACQUIRE [^"]*","[0-9.]+"`).Match(out) ||
			strings.Contains(string(out), "WARNING") {
			t.Errorf("-P %s: %v: %s", pipeline, err, out)
		}
	}
	keys, err := service.Top(t.Context(), "", "", 1000, 60_000)
	sum := int64(0)
	for _, k := range keys {
		sum += k.Count
	}
	if err != nil || sum != 8000 || len(keys) != 100 {
		t.Errorf("%d events of %d keys were counted, %v; want 8000 of 100", sum, len(keys), err)
	}
}

// TestNodeClients uses ioredis and node-redis.
func TestNodeClients(t *testing.T) {
	if !*clients {
		t.Skip("clients of other languages: make check has them (-clients)")
	}
	npm, node := optional(t, "npm"), optional(t, "node")
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "check.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "clients", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		must.Succeed(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("clients of other languages: npm can't install them: %v: %.300s", err, out)
	}
	s := serveSecured(t)
	check := exec.CommandContext(ctx, node, "check.mjs")
	check.Dir, check.Env = dir, s.environment()
	if out, err := check.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRedisPy uses redis-py where it is installed.
func TestRedisPy(t *testing.T) {
	if !*clients {
		t.Skip("clients of other languages: make check has them (-clients)")
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import redis").Run() != nil {
			continue
		}
		s := serveSecured(t)
		check := exec.CommandContext(t.Context(), python, "testdata/clients/check.py")
		check.Env = s.environment()
		if out, err := check.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	t.Skip("clients of other languages: no python3 has redis-py (Debian: python3-redis)")
}

// needed returns the path of a program that the tests require.
func needed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	must.Succeed(t, err)
	return path
}

// optional returns the path of a program; without it the test is skipped.
func optional(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("clients of other languages: there is no %s on this machine", name)
	}
	return path
}
