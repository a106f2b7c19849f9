package clustertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/testing/seed"
)

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
