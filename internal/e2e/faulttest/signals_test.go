package faulttest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// reloaded is a node with files, how to replace these, and whether it uses the new ones.
type reloaded struct {
	args    []string
	client  *http.Client
	secret  string // of who asks
	replace func()
	spoil   func() // writes unusable content
	says    string // the log message about that
	follows func(base string) bool
}

// reloadables returns a node for each kind of file that it rereads.
func reloadables(t *testing.T) map[string]reloaded {
	plain := proctest.NewClient()
	t.Cleanup(plain.CloseIdleConnections)
	return map[string]reloaded{
		"nothing": {client: plain}, "tokens": withTokens(t, plain),
		"rules": withRules(t, plain, "--rules", "rules:\n- {name: new, limits: [9/1m]}\n",
			"rules: [{", ":"),
		"rules in --config": withRules(t, plain, "--config",
			"request-timeout: 3s\nrules:\n- {name: new, limits: [9/1m]}\n",
			"request-timeut: 3s\nrules:\n- {name: newer, limits: [9/1m]}\n", ":1:1: "),
		"certificate": withCertificate(t),
	}
}

// withRules has rules in a file that a flag names. It is spoiled by a mistake in a setting or
// a rule: the file is refused as a whole, and the log has the place.
func withRules(t *testing.T, c *http.Client, flag, next, spoiled, says string) reloaded {
	path := filepath.Join(t.TempDir(), "twotier.yaml")
	must.Write(t, path, "rules:\n- {name: old, limits: [9/1m]}\n")
	return reloaded{args: []string{flag, path}, client: c,
		replace: func() { must.Write(t, path, next) },
		spoil:   func() { must.Write(t, path, spoiled) }, says: path + says,
		follows: func(base string) bool {
			code, _ := ask(t, c, "", "POST", base+"/v1/acquire", `{"key":"r","rules":["new"]}`)
			return code == http.StatusOK
		}}
}

func withTokens(t *testing.T, c *http.Client) reloaded {
	file := newTokenFile(t)
	first, next := file.add("first", twotier.AnyRole, "*"), ""
	return reloaded{args: []string{"--tokens", file.path}, client: c, secret: first,
		replace: func() { next = file.add("next", twotier.AnyRole, "*") },
		spoil:   func() { must.Write(t, file.path, "no token\n") },
		follows: func(base string) bool {
			code, _ := ask(t, c, next, "GET", base+"/v1/count?key=k&window=1m", "")
			return code == http.StatusOK
		}}
}

func withCertificate(t *testing.T) reloaded {
	ca := newAuthority(t)
	cert, key := ca.issue("node", 100)
	c := ca.client(nil)
	return reloaded{args: []string{"--tls-cert", cert, "--tls-key", key}, client: c,
		replace: func() { ca.issue("node", 101) },
		spoil:   func() { ca.write(cert, []byte("no certificate")) },
		follows: func(base string) bool {
			res, err := c.Get(base + "/healthz")
			must.Succeed(t, err)
			defer res.Body.Close()
			return res.TLS.PeerCertificates[0].SerialNumber.Int64() == 101
		}}
}

// TestSIGHUPReadsFilesAndKeepsCounts sends SIGHUP to nodes that have counted and have no Redis, so
// that any count lost by their end would show: before their files change, after that, and once the
// files are spoiled.
func TestSIGHUPReadsFilesAndKeepsCounts(t *testing.T) {
	t.Parallel()
	for name, r := range reloadables(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := program.Serve(t, proctest.Options{}, r.args...)
			counted := 0
			hangUp := func() {
				t.Helper()
				heard := strings.Count(p.Log.String(), "SIGHUP")
				p.HangUp()
				proctest.Until(t, "the signal is heard", func() bool {
					return strings.Count(p.Log.String(), "SIGHUP") > heard
				})
				counted++
				want := fmt.Sprintf(`"count":%d,`, counted)
				if code, text := ask(t, r.client, r.secret, "POST", p.Base+"/v1/add",
					`{"key":"k","limits":[{"window":"24h","max":9}]}`); code != 200 ||
					!strings.Contains(text, want) {
					t.Fatalf("%d %s, want %s", code, text, want)
				}
			}
			hangUp()
			if r.replace != nil {
				r.replace()
				hangUp()
				proctest.Until(t, "new", func() bool { return r.follows(p.Base) })
				r.spoil()
				hangUp()
				proctest.Until(t, "it says that a file is spoiled", func() bool {
					return strings.Contains(p.Log.String(), "keeping the previous content")
				})
				if !strings.Contains(p.Log.String(), r.says) {
					t.Errorf("it does not say %q", r.says)
				}
				if !r.follows(p.Base) {
					t.Error("a spoiled file is followed")
				}
			}
			if status := p.Stop(); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

// TestServesDuringDrainDelay stops a node with a long --drain-delay. The only change is that it
// reports not to be ready: every listener accepts new connections, and writes and reads are
// answered.
func TestServesDuringDrainDelay(t *testing.T) {
	t.Parallel()
	p := program.Serve(t, proctest.Options{}, "--drain-delay", "1h", "--resp", "127.0.0.1:0",
		"--grpc", "127.0.0.1:0")
	health := grpcHealth(t, p)
	if got := health(); got != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("gRPC says %v", got)
	}
	p.Terminate()
	proctest.Until(t, "it is not ready", func() bool { code, _ := p.Ready(); return code == 503 })
	if got := health(); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC says %v", got)
	}
	p.HTTP.CloseIdleConnections()
	p.MustPost("/v1/add", `{"key":"k","n":3}`)
	if got := p.Count("k", "1m").Counts[0].Max; got != 3 {
		t.Errorf("counted %d", got)
	}
	if code, _ := p.Get("/healthz"); code != 200 {
		t.Errorf("health: %d", code)
	}
	c := redis.NewClient(&redis.Options{Addr: p.Resp, MaxRetries: -1})
	defer c.Close()
	got, err := c.Do(t.Context(), "TT.COUNT", "k", "1m").Int64Slice()
	if err != nil || got[0] != 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// grpcHealth returns a function that asks a node's gRPC health service on a new connection.
func grpcHealth(t *testing.T, p *proctest.Process) func() servingStatus {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	return func() servingStatus {
		t.Helper()
		conn, err := grpc.NewClient(p.GRPC, plain)
		must.Succeed(t, err)
		defer conn.Close()
		answer, err := healthv1.NewHealthClient(conn).Check(t.Context(),
			&healthv1.HealthCheckRequest{})
		must.Succeed(t, err)
		return answer.GetStatus()
	}
}

type servingStatus = healthv1.HealthCheckResponse_ServingStatus

// TestDrainDelayEnds stops a node with a short --drain-delay. It takes at least that long, and
// flushes its counts.
func TestDrainDelayEnds(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	store := redistest.Start(t)
	flags := []string{"--redis", store.URL(), "--drain-delay", delay.String()}
	p := program.Serve(t, proctest.Options{}, flags...)
	p.MustPost("/v1/add", `{"key":"k","n":3}`)
	begun := time.Now()
	if status := p.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if took := time.Since(begun); took < delay {
		t.Errorf("it ended after %v", took)
	}
	next := program.Serve(t, proctest.Options{}, flags...)
	if got := next.Count("k", "1m").Counts[0].Max; got != 3 {
		t.Errorf("counted %d", got)
	}
}

// TestJSONLogFromTheFirstLineToTheLast starts nodes with --log-format json, from a flag, from the
// environment and from the file, that run or are refused at any stage. All their output to stderr
// is JSON, one object a line, with a level and a message.
func TestJSONLogFromTheFirstLineToTheLast(t *testing.T) {
	t.Parallel()
	file := must.File(t, "twotier.yaml", "log-format: json\nspeed: 9\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { taken.Close() })
	for name, tt := range map[string]struct {
		args, env []string
		says      string
		status    int
	}{
		"runs": {args: []string{"--log-format=json"}, says: "ready"},
		"unknown flag": {args: []string{"--speed", "--log-format", "json"}, says: "--speed",
			status: 2},
		"argument": {args: []string{"--log-format", "json", "now"}, says: "now", status: 2},
		"wrong value": {args: []string{"--ack", "sure"}, env: []string{"TWOTIER_LOG_FORMAT=json"},
			says: "sure", status: 2},
		"wrong file": {args: []string{"--config", file}, says: "speed", status: 2},
		"taken address": {args: []string{"--log-format", "json", "--resp",
			taken.Addr().String()}, says: "taken", status: 1},
		"no rules": {args: []string{"--log-format", "json", "--rules", "/none"}, says: "/none",
			status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := program.TryServe(t, proctest.Options{MayComplain: true, Env: tt.env},
				tt.args...)
			if err == nil {
				p.HangUp()
				p.Terminate()
			}
			proctest.Wait(t, "its end", p.Done())
			log := p.Log.String()
			if p.ExitCode() != tt.status || !strings.Contains(log, tt.says) {
				t.Errorf("exit status %d, want %d and %q:\n%s", p.ExitCode(), tt.status, tt.says,
					log)
			}
			for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
				var line struct{ Level, Msg string }
				if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level == "" ||
					line.Msg == "" {
					t.Errorf("%v: %s", err, lines.Text())
				}
			}
		})
	}
}

// supervisor returns the socket of a supervisor, and the environment that gives a node its address.
func supervisor(t *testing.T) (socket *net.UnixConn, env []string) {
	t.Helper()
	address := net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", &address)
	must.Succeed(t, err)
	t.Cleanup(func() { socket.Close() })
	return socket, []string{"NOTIFY_SOCKET=" + address.Name, "WATCHDOG_USEC=20000"}
}

// TestSupervisorIsTold checks the messages of a node to the supervisor that started it: that it is
// ready, again and again that it is alive, that it rereads files, and that it stops.
func TestSupervisorIsTold(t *testing.T) {
	t.Parallel()
	socket, env := supervisor(t)
	p := program.Serve(t, proctest.Options{Env: env})
	told := func(want string) {
		t.Helper()
		must.Succeed(t, socket.SetReadDeadline(time.Now().Add(proctest.Patience)))
		message := make([]byte, 1<<10)
		for {
			n, err := socket.Read(message)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if strings.HasPrefix(string(message[:n]), want) {
				return
			}
		}
	}
	told("READY=1")
	told("WATCHDOG=1")
	told("WATCHDOG=1")
	p.HangUp()
	told("RELOADING=1\nMONOTONIC_USEC=")
	told("READY=1")
	p.Terminate()
	told("STOPPING=1")
	if status := p.ExitCode(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestSupervisorThatDoesNotListen checks that a node starts, serves and ends under a supervisor
// whose queue of messages is full.
func TestSupervisorThatDoesNotListen(t *testing.T) {
	t.Parallel()
	socket, env := supervisor(t)
	self, err := net.DialUnix("unixgram", nil, socket.LocalAddr().(*net.UnixAddr))
	must.Succeed(t, err)
	defer self.Close()
	for err == nil {
		if err = self.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err == nil {
			_, err = self.Write([]byte("full"))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	p := program.Serve(t, proctest.Options{Env: env, MayComplain: true})
	p.MustPost("/v1/add", `{"key":"a"}`)
	proctest.Until(t, "it says that it can't tell", func() bool {
		return strings.Contains(p.Log.String(), "NOTIFY_SOCKET can't be told")
	})
	p.Terminate()
	proctest.Wait(t, "its end", p.Done())
	if status := p.ExitCode(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
