package clustertest

import (
	"bufio"
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
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/child"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/testing/seed"
)

// The scripts of old limiters, as they are found in many applications. ARGV is the time in
// milliseconds, the window, the limit, and a unique member.
const (
	zsetLog = `local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[4])
return 1`
	zsetAlways = `local now, window = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
redis.call('ZADD', KEYS[1], now, ARGV[4])
return redis.call('ZCARD', KEYS[1]) <= tonumber(ARGV[3]) and 1 or 0`
	fixedWindow = `local key = KEYS[1] .. ':' .. math.floor(ARGV[1] / ARGV[2])
return redis.call('INCR', key) <= tonumber(ARGV[3]) and 1 or 0`
	tokenBucket = `local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local b = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(b[1] or limit), tonumber(b[2] or now)
tokens = math.min(limit, tokens + (now - at) * limit / window)
local allowed = tokens >= 1
if allowed then tokens = tokens - 1 end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', now)
return allowed and 1 or 0`
)

// mirrorProcess is a twotier mirror.
type mirrorProcess struct {
	t      *testing.T
	url    string
	redis  string // the address for Redis clients
	child  *child.Child
	client *http.Client
	errs   proctest.LogBuffer
	stdout *os.File
	lines  *bufio.Reader
}

// startMirror starts a mirror of a server and waits until it is ready.
func startMirror(t *testing.T, server string, args ...string) *mirrorProcess {
	t.Helper()
	cmd := exec.Command(program.Path(t), append([]string{"mirror", "--server",
		server, "--listen", "127.0.0.1:0"}, args...)...)
	m := &mirrorProcess{t: t, client: proctest.NewClient()}
	stdout, w, err := os.Pipe()
	must.Succeed(t, err)
	cmd.Stdout, cmd.Stderr = w, &m.errs
	m.child, err = child.Start(cmd)
	w.Close()
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, m.child.Kill()); stdout.Close() })
	m.stdout, m.lines = stdout, bufio.NewReader(stdout)
	line, err := m.lines.ReadString('\n')
	var ready struct {
		Ready         bool
		Listen, Redis string
	}
	if err != nil || json.Unmarshal([]byte(line), &ready) != nil || !ready.Ready {
		t.Fatalf("no ready line: %q, %v\n%s", line, err, m.errs.String())
	}
	m.url, m.redis = "http://"+ready.Listen, ready.Redis
	return m
}

// post sends verdicts and returns how long that took.
func (m *mirrorProcess) post(body string) time.Duration {
	m.t.Helper()
	began := time.Now()
	res, text, err := proctest.Send(m.client, http.MethodPost, m.url, body)
	if err != nil || res.StatusCode != http.StatusAccepted {
		m.t.Fatalf("want 202: %v %s", err, text)
	}
	return time.Since(began)
}

// report waits until nothing waits, and returns the report.
func (m *mirrorProcess) report(verdicts uint64) (r mirror.Report) {
	m.t.Helper()
	proctest.Until(m.t, "everything is compared", func() bool {
		_, text, err := proctest.Send(m.client, http.MethodGet, m.url, "")
		must.Succeed(m.t, err)
		r = mirror.Report{}
		must.Succeed(m.t, json.Unmarshal([]byte(text), &r))
		return r.Compared+r.Errors+r.Dropped == verdicts
	})
	return r
}

// stop sends SIGTERM, and returns what the mirror prints and its exit status.
func (m *mirrorProcess) stop() (printed string, status int) {
	m.t.Helper()
	must.Succeed(m.t, m.child.Signal(syscall.SIGTERM))
	var out bytes.Buffer
	_, err := out.ReadFrom(m.lines)
	must.Succeed(m.t, err)
	return out.String(), m.child.ExitCode()
}

// replay runs an old limiter over random events of four keys, from half an hour ago on, and mirrors
// its verdicts: bursts and pauses, at most 5 in a minute.
func replay(t *testing.T, m *mirrorProcess, r redis.UniversalClient, script string, events int) {
	t.Helper()
	first := seed.First()
	t.Logf("TWOTIER_TEST_FIRST=%d", first)
	random := rand.New(rand.NewPCG(first, 1))
	ts := time.Now().Add(-30 * time.Minute).Truncate(time.Minute).UnixMilli()
	old := redis.NewScript(script)
	var lines strings.Builder
	for i := range events {
		ts += random.Int64N(1200)
		if random.IntN(40) == 0 {
			ts += random.Int64N(60_000)
		}
		key := fmt.Sprint("user:", random.IntN(4))
		allowed, err := old.Run(t.Context(), r, []string{"old:" + key}, ts, 60_000, 5, i).Bool()
		must.Succeed(t, err)
		fmt.Fprintf(&lines, `{"key":%q,"ts":%d,"rules":["login"],"allowed":%t}`+"\n", key, ts,
			allowed)
		if i%20 == 19 || i == events-1 {
			m.post(lines.String())
			lines.Reset()
		}
	}
}

// TestMirror mirrors limiters in Lua on a real Redis. A log of timestamps agrees completely with
// twotier over the same Redis; for each other kind the report has the right reason and keys.
func TestMirror(t *testing.T) {
	t.Parallel()
	const events = 400
	for name, c := range map[string]struct {
		script string
		want   mirror.Reason
		args   []string
	}{
		"log":                           {script: zsetLog},
		"always counted":                {zsetAlways, mirror.CountsRefused, nil},
		"always counted, as by twotier": {script: zsetAlways, args: []string{"--count-denied"}},
		"fixed window":                  {fixedWindow, mirror.FixedWindow, nil},
		"token bucket":                  {tokenBucket, mirror.TokenBucket, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			rules := must.File(t, "rules.yaml",
				"rules: [{name: login, limits: [5/1m, 99999/hour]}]\n")
			server := program.Serve(t, proctest.Options{}, "--redis", r.URL(), "--rules", rules)
			m := startMirror(t, server.Base, c.args...)
			replay(t, m, r.Client(t), c.script, events)
			report := m.report(events)
			if report.Errors+report.Dropped+report.Invalid != 0 {
				t.Errorf("want only comparisons: %s", &report)
			}
			if c.want == "" && (report.Agreement != 1 || len(report.Keys) > 0) {
				t.Errorf("want complete agreement:\n%s", &report)
			}
			if c.want != "" {
				checkReason(t, &report, c.want)
			}
			printed, status := m.stop()
			if status != 0 || !strings.HasPrefix(printed, report.Summary()+"\n") ||
				c.want != "" && !strings.Contains(printed, string(c.want)) {
				t.Errorf("status %d, printed %s\nwant %s", status, printed, &report)
			}
		})
	}
}

// checkReason checks that nearly all differences have one reason, in all keys.
func checkReason(t *testing.T, r *mirror.Report, want mirror.Reason) {
	t.Helper()
	if r.Stricter+r.Looser == 0 || r.Reasons[0].Reason != want ||
		float64(r.Reasons[0].Differences) < 0.9*float64(r.Stricter+r.Looser) {
		t.Fatalf("want differences because of %s:\n%s", want, r)
	}
	for _, k := range r.Keys {
		if !strings.HasPrefix(k.Key, "user:") || k.Reason != want || k.Last.Limits[0].Max != 5 ||
			k.Last.Limits[0].Rule != "login" || k.Last.Old == k.Last.Twotier {
			t.Errorf("want the key and its reason: %+v", k)
		}
	}
}

// TestMirrorWithoutServer posts verdicts while no server runs, and after it is back: the
// application never waits, and the report counts the errors and then names them as the reason.
func TestMirrorWithoutServer(t *testing.T) {
	t.Parallel()
	server := program.Serve(t, proctest.Options{})
	m := startMirror(t, server.Base, "--limit", "3/1m", "--interval", "100ms", "--timeout", "2s")
	m.post(`{"key":"ann","allowed":true}`)
	if r := m.report(1); r.Agreed != 1 {
		t.Fatalf("want one agreement: %s", &r)
	}
	server.Kill()
	for range 20 {
		if took := m.post(`{"key":"ann","allowed":true}`); took > 10*time.Second {
			t.Errorf("the application waited for %v", took)
		}
	}
	r := m.report(21)
	if r.Errors != 20 || r.LastError == "" {
		t.Errorf("want 20 errors: %s", &r)
	}
	program.Serve(t, proctest.Options{Listen: server.Listen})
	sent := uint64(21)
	proctest.Until(t, "the server is back", func() bool {
		sent++
		m.post(`{"key":"bob","allowed":true}`)
		return m.report(sent).Compared > 1
	})
	m.post(`{"key":"ann","allowed":false}`)
	if r := m.report(sent + 1); r.Looser != 1 || r.Reasons[0].Reason != mirror.Lost {
		t.Errorf("want lost events as the reason:\n%s", &r)
	}
	proctest.Until(t, "a summary", func() bool {
		return strings.Contains(m.errs.String(), " compared, ")
	})
	if printed, status := m.stop(); status != 0 || !strings.Contains(printed, "last error: ") {
		t.Errorf("status %d, printed %s", status, printed)
	}
}

// TestMirrorInLuaCompiles checks the syntax of the mirror in Lua with the interpreter of Redis,
// which has the same version.
func TestMirrorInLuaCompiles(t *testing.T) {
	t.Parallel()
	lua := must.Read(t, filepath.Join("..", "..", "..", "deploy", "mirror", "mirror.lua"))
	compiled, err := redistest.Start(t).Do("EVAL",
		"local f, e = loadstring(ARGV[1]) return e or 'compiled'", 0, lua).Text()
	if err != nil || compiled != "compiled" {
		t.Errorf("mirror.lua: %s, %v", compiled, err)
	}
}

// TestMirrorOfRedis points an application's Redis client at a mirror, in RESP2 and RESP3, and calls
// an old limiter alone, in pipelines and in transactions, between other commands and beside
// a subscription. All replies are those of Redis, and every verdict is compared.
func TestMirrorOfRedis(t *testing.T) {
	t.Parallel()
	mapping := filepath.Join("..", "..", "..", "deploy", "mirror", "mapping.yaml")
	for _, c := range []struct {
		protocol int
		script   string
		want     mirror.Reason // "" for complete agreement
	}{
		{2, zsetLog, ""}, {3, zsetLog, ""}, {3, zsetAlways, mirror.CountsRefused},
	} {
		t.Run(fmt.Sprint(c.protocol, " ", c.want), func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			server := program.Serve(t, proctest.Options{})
			m := startMirror(t, server.Base, "--redis", r.URL(), "--listen-redis", "127.0.0.1:0",
				"--mapping", mapping)
			application := redis.NewClient(&redis.Options{Addr: m.redis, Protocol: c.protocol})
			defer application.Close()
			const events = 300
			callLimiter(t, application, c.script, events)
			report := m.report(events)
			if report.Errors+report.Dropped+report.Invalid != 0 {
				t.Errorf("want only comparisons: %s", &report)
			}
			if c.want == "" && report.Agreement != 1 {
				t.Errorf("want complete agreement:\n%s", &report)
			}
			if c.want != "" && (report.Looser == 0 || report.Reasons[0].Reason != c.want) {
				t.Errorf("want differences because of %s:\n%s", c.want, &report)
			}
			if printed, status := m.stop(); status != 0 ||
				!strings.HasPrefix(printed, report.Summary()) {
				t.Errorf("status %d, printed %s", status, printed)
			}
		})
	}
}

// callLimiter calls a limiter for random events, and other commands, and checks their replies.
func callLimiter(t *testing.T, r *redis.Client, script string, events int) {
	t.Helper()
	first := seed.First()
	t.Logf("TWOTIER_TEST_FIRST=%d", first)
	random := rand.New(rand.NewPCG(first, 2))
	ctx := t.Context()
	channel := r.Subscribe(ctx, "news")
	defer channel.Close()
	_, err := channel.Receive(ctx)
	must.Succeed(t, err)
	old := redis.NewScript(script)
	must.Succeed(t, old.Load(ctx, r).Err())
	ts := time.Now().Add(-30 * time.Minute).UnixMilli()
	for done := 0; done < events; {
		run := r.Pipelined
		if random.IntN(2) == 0 {
			run = r.TxPipelined
		}
		n := min(1+random.IntN(5), events-done)
		text := strings.Repeat("x", random.IntN(100_000))
		var last *redis.StringCmd
		_, err := run(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "other", text, 0)
			for range n {
				ts += 1 + random.Int64N(2500)
				key := fmt.Sprint("old:user:", random.IntN(3))
				old.EvalSha(ctx, p, []string{key}, ts, 60_000, 5, ts)
			}
			last = p.Get(ctx, "other")
			return nil
		})
		must.Succeed(t, err)
		if last.Val() != text {
			t.Fatalf("%d bytes were read, want %d", len(last.Val()), len(text))
		}
		done += n
	}
	must.Succeed(t, r.Publish(ctx, "news", "hello").Err())
	if message, err := channel.ReceiveMessage(ctx); err != nil || message.Payload != "hello" {
		t.Errorf("want the message: %v, %v", message, err)
	}
}

// TestMirrorWithoutRedis stops the old Redis: the application sees its connections end, and the
// mirror goes on.
func TestMirrorWithoutRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	server := program.Serve(t, proctest.Options{})
	m := startMirror(t, server.Base, "--redis", r.URL(), "--listen-redis", "127.0.0.1:0",
		"--mapping", must.File(t, "mapping.yaml", "calls: [{command: CL.THROTTLE}]\n"))
	c, err := net.Dial("tcp", m.redis)
	must.Succeed(t, err)
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	must.Succeed(t, c.SetReadDeadline(time.Now().Add(proctest.Patience)))
	if n, err := c.Read(b); err != nil || string(b[:n]) != "+PONG\r\n" {
		t.Errorf("an inline command: %q, %v", b[:n], err)
	}
	r.Kill()
	if n, err := c.Read(b); err == nil {
		t.Errorf("want the end of the connection, not %q", b[:n])
	}
	m.post(`{"key":"ann","limits":[{"window":"1m","max":3}],"allowed":true}`)
	if report := m.report(1); report.Agreed != 1 {
		t.Errorf("want one agreement: %s", &report)
	}
	if _, status := m.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
}
