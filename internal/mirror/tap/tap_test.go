package tap_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/mirror/tap"
	"twotier.dev/twotier/internal/testing/must"
)

// recorder is a twotier that records the questions.
type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) Batch(_ context.Context, ops []client.Op) ([]client.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := make([]client.Result, len(ops))
	for i := range ops {
		a := ops[i].Acquire
		text := fmt.Sprintf("%s %d allowed=%t", a.Key, a.N, a.Charge)
		for _, l := range a.Limits {
			text += fmt.Sprintf(" %d/%s", l.Max, l.Window)
		}
		for _, name := range a.Rules {
			text += " " + name
		}
		if !a.At.Equal(now) {
			text += fmt.Sprint(" ", a.At.UnixMilli())
		}
		r.list = append(r.list, text)
		results[i].Acquire = &client.AcquireAnswer{
			CheckAnswer: client.CheckAnswer{Allowed: a.Charge}}
	}
	return results, nil
}

var now = time.UnixMilli(1_800_000_000_000)

const calls = `calls:
- sha: 0123456789012345678901234567890123456789
  key: KEYS[1]
  strip: "rl:"
  limit: ARGV[3]
  window: ARGV[2]
  unit: ms
  now: ARGV[1]
  n: ARGV[4]
  allowed: REPLY == 1
- match: ZCARD
  key: KEYS[1]
  rules: [login]
  allowed: REPLY <= ARGV[1]
- script: limiter.lua
  key: ARGV[1]
  limit: 5
  window: 1m
  allowed: REPLY[2] != nil
- command: cl.throttle
`

// harness is a tap between the test, as the application, and the test as Redis.
type harness struct {
	t           *testing.T
	mirror      *mirror.Mirror
	tap         *tap.Tap
	asked       recorder
	application net.Conn
	redis       net.Conn
}

func start(t *testing.T) *harness {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir+"/limiter.lua", "return {1, false}")
	must.Write(t, dir+"/calls.yaml", calls)
	mappings, err := tap.Read(dir + "/calls.yaml")
	must.Succeed(t, err)
	h := &harness{t: t}
	h.mirror, err = mirror.New(mirror.Options{Twotier: &h.asked})
	must.Succeed(t, err)
	h.mirror.Open(t.Context())
	old, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer old.Close()
	x, err := tap.New(tap.Options{Mirror: h.mirror, Mappings: mappings,
		Address: old.Addr().String(), Now: func() time.Time { return now }})
	must.Succeed(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	h.tap = x
	must.Succeed(t, x.Open(l))
	h.application, err = net.Dial("tcp", l.Addr().String())
	must.Succeed(t, err)
	h.redis, err = old.Accept()
	must.Succeed(t, err)
	t.Cleanup(func() {
		h.application.Close()
		h.redis.Close()
		must.Succeed(t, x.Close())
		h.mirror.Close(context.Background())
	})
	return h
}

// pass sends bytes from one side, in pieces of some size, and checks that they arrive unchanged.
func (h *harness) pass(from, to net.Conn, text string, size int) {
	h.t.Helper()
	go func() {
		for piece := range slices.Chunk([]byte(text), size) {
			_, _ = from.Write(piece)
			time.Sleep(100 * time.Microsecond)
		}
	}()
	got := make([]byte, len(text))
	must.Succeed(h.t, to.SetReadDeadline(time.Now().Add(time.Minute)))
	if n, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, []byte(text)) {
		h.t.Fatalf("%d bytes arrived, %v: %.500q, want %.500q", n, err, got[:n], text)
	}
}

// exchange passes commands and their replies.
func (h *harness) exchange(requests, replies string, size int) {
	h.t.Helper()
	h.pass(h.application, h.redis, requests, size)
	h.pass(h.redis, h.application, replies, size)
}

// command returns a command as clients send it.
func command(words ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

const sha = "0123456789012345678901234567890123456789"

// evalsha returns a call of the first mapping.
func evalsha(key, n string) string {
	return command("evalsha", sha, "1", "rl:"+key, "1799999999000", "60000", "7", n)
}

// TestReading forwards commands and replies in pieces of several sizes, and compares the verdicts.
func TestReading(t *testing.T) {
	const zcard = "return redis.call('ZCARD', KEYS[1])"
	const first = "ann 2 allowed=true 7/1m0s 1799999999000"
	for name, c := range map[string]struct {
		requests, replies string
		want              []string
		invalid           string
	}{
		"one": {evalsha("ann", "2"), ":1\r\n", []string{first}, ""},
		"refused": {evalsha("ann", "2"), ":0\r\n",
			[]string{"ann 2 allowed=false 7/1m0s 1799999999000"}, ""},
		"pipeline": {command("GET", "a") + evalsha("ann", "2") + command("LRANGE", "l", "0", "-1"),
			"$-1\r\n:1\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n", []string{first}, ""},
		"transaction": {command("MULTI") + command("SET", "a", "1") + evalsha("ann", "2") +
			command("EXEC") + evalsha("bob", "1"),
			"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n:0\r\n",
			[]string{first, "bob 1 allowed=false 7/1m0s 1799999999000"}, ""},
		"discarded": {command("MULTI") + evalsha("bob", "2") + command("DISCARD") +
			evalsha("ann", "2"), "+OK\r\n+QUEUED\r\n+OK\r\n:1\r\n", []string{first}, ""},
		"not executed": {command("MULTI") + evalsha("bob", "2") + command("EXEC") +
			evalsha("ann", "2"), "+OK\r\n+QUEUED\r\n*-1\r\n:1\r\n", []string{first}, ""},
		"resp3": {command("HELLO", "3") + evalsha("ann", "2") + evalsha("bob", "1"),
			"%1\r\n+server\r\n+redis\r\n>2\r\n+invalidate\r\n_\r\n|1\r\n+ttl\r\n:5\r\n#t\r\n" +
				">1\r\n$1\r\nx\r\n:0\r\n",
			[]string{first, "bob 1 allowed=false 7/1m0s 1799999999000"}, ""},
		"error": {evalsha("bob", "2") + evalsha("ann", "2"), "-NOSCRIPT no\r\n:1\r\n",
			[]string{first}, ""},
		"text": {command("EVAL", zcard, "1", "ann", "3") + command("SCRIPT", "LOAD", zcard) +
			command("EVALSHA", zcardSHA, "1", "bob", "3"),
			":3\r\n$40\r\n" + zcardSHA + "\r\n:4\r\n",
			[]string{"ann 1 allowed=true login", "bob 1 allowed=false login"}, ""},
		"script file": {command("EVAL", "return {1, false}", "0", "ann"), "*2\r\n:1\r\n$-1\r\n",
			[]string{"ann 1 allowed=false 5/1m0s"}, ""},
		"redis-cell": {command("CL.THROTTLE", "ann", "14", "30", "60", "2") +
			command("CL.THROTTLE", "ann", "14", "30", "60"),
			"*5\r\n:0\r\n:15\r\n:13\r\n:-1\r\n:4\r\n*5\r\n:1\r\n:15\r\n:0\r\n:2\r\n:30\r\n",
			[]string{"ann 2 allowed=true 15/30s", "ann 1 allowed=false 15/30s"}, ""},
		"long argument": {command("SET", "a", strings.Repeat("x", 100_000)) + evalsha("ann", "2"),
			"+OK\r\n:1\r\n", []string{first}, ""},
		"long reply": {command("GET", "a") + evalsha("ann", "2"),
			"$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n:1\r\n", []string{first}, ""},
		"long reply in a transaction": {command("MULTI") + command("GET", "a") +
			evalsha("ann", "2") + command("EXEC"), "+OK\r\n" +
			"+QUEUED\r\n+QUEUED\r\n*2\r\n$100000\r\n" +
			strings.Repeat("x", 100_000) + "\r\n:1\r\n", []string{first}, ""},
		"many elements": {command("LRANGE", "l", "0", "-1") + evalsha("ann", "2"),
			"*9999\r\n" + strings.Repeat(":1\r\n", 9999) + ":1\r\n", []string{first}, ""},
		"long key": {evalsha(strings.Repeat("k", 100_000), "2"), ":1\r\n", nil,
			"KEYS[1] is empty or too long"},
		"long script": {command("EVAL", "--ZCARD"+strings.Repeat("x", 100_000), "1", "a"),
			":1\r\n", nil, ""},
		"other script": {command("EVALSHA", strings.Repeat("f", 40), "0"), ":1\r\n", nil, ""},
		"no key": {command("EVALSHA", sha, "0", "1"), ":1\r\n", nil,
			"the call has no KEYS[1]"},
		"bad limit": {command("EVALSHA", sha, "1", "a", "1", "1", "x"), ":1\r\n", nil,
			`ARGV[3]: "x" is no integer`},
		"other reply": {evalsha("ann", "2"), "*1\r\n:1\r\n", nil, "the reply is an array"},
		"subscribed": {evalsha("ann", "2") + command("SUBSCRIBE", "c") + evalsha("bob", "1"),
			":1\r\n*3\r\n+subscribe\r\n+c\r\n:1\r\n:1\r\n", nil, ""},
		"client reply": {command("CLIENT", "REPLY", "SKIP") + evalsha("bob", "1") +
			evalsha("ann", "2"), ":1\r\n", nil, ""},
		"inline":  {"PING\r\n" + evalsha("ann", "2"), "+PONG\r\n:1\r\n", nil, ""},
		"garbage": {"GET / HTTP/1.1\r\n\r\n\x00\xff", "-ERR\r\n\x01", nil, ""},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			if size < 100 && len(c.requests)+len(c.replies) > 10_000 {
				continue
			}
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				t.Parallel()
				h := start(t)
				h.exchange(c.requests, c.replies, size)
				h.mirror.Close(t.Context())
				if !slices.Equal(h.asked.list, c.want) {
					t.Errorf("verdicts\n%q, want\n%q", h.asked.list, c.want)
				}
				r := h.mirror.Report()
				if r.Invalid > 0 != (c.invalid != "") ||
					!strings.Contains(r.LastInvalid, c.invalid) {
					t.Errorf("invalid: %q, want %q", r.LastInvalid, c.invalid)
				}
			})
		}
	}
}

// TestUnknownScripts reports an EVALSHA of a script that no mapping names, unless its text has
// passed, or Redis has not executed it.
func TestUnknownScripts(t *testing.T) {
	const other = "return 1"
	const otherSHA = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	unknown := strings.Repeat("f", 40)
	for name, c := range map[string]struct {
		requests, replies string
		want              uint64
	}{
		"loaded before": {command("EVALSHA", unknown, "1", "a") + command("evalsha_ro", unknown,
			"1", "b"), ":1\r\n:0\r\n", 2},
		"not loaded": {command("EVALSHA", unknown, "1", "a"), "-NOSCRIPT no\r\n", 0},
		"no limiter": {command("EVAL", other, "0") + command("EVALSHA", otherSHA, "0"),
			":1\r\n:1\r\n", 0},
		"in --mapping": {evalsha("ann", "2"), ":1\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			h.exchange(c.requests, c.replies, 1<<20)
			h.mirror.Close(t.Context())
			r := h.mirror.Report()
			if r.UnknownCalls != c.want || c.want > 0 != (r.LastUnknown == unknown) {
				t.Errorf("%d unknown calls, %s", r.UnknownCalls, r.LastUnknown)
			}
			if want := "0 compared; 2 EVALSHA of a script not in --mapping: " + unknown +
				" (add sha:)"; strings.Contains(r.Summary(), want) != (c.want > 0) {
				t.Errorf("%s", r.Summary())
			}
		})
	}
}

// TestStripWithoutMatch reports a prefix only if no key begins with it.
func TestStripWithoutMatch(t *testing.T) {
	h := start(t)
	call := func(key string) {
		h.exchange(command("evalsha", sha, "1", key, "1799999999000", "60000", "7", "1"),
			":1\r\n", 1<<20)
	}
	call("limit:ann")
	call("limit:bob")
	const want = `strip: no key of 2 calls begins with "rl:", such as limit:ann`
	if text := h.mirror.Report().String(); !strings.Contains(text, want) {
		t.Errorf("%s, want %s", text, want)
	}
	call("rl:ann")
	if text := h.mirror.Report().String(); strings.Contains(text, "strip") {
		t.Error(text)
	}
}

const zcardSHA = "069031802520e6bede929a90688aa1aaeff3de25"

// TestEnds checks that the end of either direction is passed on, and the other one goes on.
func TestEnds(t *testing.T) {
	h := start(t)
	must.Succeed(t, h.application.(*net.TCPConn).CloseWrite())
	if b, err := io.ReadAll(h.redis); err != nil || len(b) > 0 {
		t.Errorf("want the end: %q, %v", b, err)
	}
	h.pass(h.redis, h.application, "+late\r\n", 100)
	h.redis.Close()
	if _, err := bufio.NewReader(h.application).ReadByte(); err == nil {
		t.Error("the connection has not ended")
	}
}

// TestReadMistakes checks that each mistake in a mapping is reported with its place.
func TestReadMistakes(t *testing.T) {
	for text, want := range map[string]string{
		``:                                          `no calls`,
		`cals: []`:                                  `:1:1: `,
		`calls: [{key: k}]`:                         `want one of sha, script, match and command`,
		`calls: [{sha: 12, key: k}]`:                `:1:15: sha: "12" has not the 40 hexadecimal digits`,
		`calls: [{match: "(", key: a}]`:             `match: error parsing regexp`,
		`calls: [{script: none.lua}]`:               `script: open `,
		`calls: [{match: a}]`:                       `key: missing`,
		`calls: [{match: a, key: 'KEYS[0]'}]`:       `key: "[0]" is no index`,
		`calls: [{match: a, key: k}]`:               `allowed: missing`,
		`calls: [{match: a, key: k, allowed: "1"}]`: `allowed: "1" is no condition`,
		`calls: [{match: a, key: k, allowed: "REPLY = 1"}]`:                                    `"=" is no comparison`,
		`calls: [{match: a, key: k, allowed: "REPLY < nil"}]`:                                  `nil can be compared only`,
		`calls: [{match: a, key: k, allowed: "REPLY[x] == 1"}]`:                                `"[x]" is no index`,
		`calls: [{match: a, key: k, allowed: "REPLY == 1", limit: 5}]`:                         `limit and window: want both`,
		`calls: [{match: a, key: k, unit: h, allowed: "REPLY == 1"}]`:                          `"h" is no unit`,
		`calls: [{match: a, ky: k, key: k, allowed: "REPLY == 1"}]`:                            `ky`,
		`calls: [{match: a, key: k, allowed: "REPLY == 1", limit: 5, window: 1m, rules: [r]}]`: `limit and rules`,
	} {
		path := must.File(t, "calls.yaml", text)
		if _, err := tap.Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzReading forwards arbitrary bytes in both directions: they must arrive, whatever they are.
func FuzzReading(f *testing.F) {
	f.Add([]byte(evalsha("ann", "2")), []byte(":1\r\n"))
	f.Add([]byte(command("MULTI")+evalsha("ann", "2")+command("EXEC")),
		[]byte("+OK\r\n+QUEUED\r\n*1\r\n:1\r\n"))
	f.Add([]byte("*1\r\n$-1\r\n"), []byte("*-1\r\n%2\r\n"))
	f.Add([]byte("*1000000000\r\n"), []byte("$?\r\n"))
	f.Fuzz(func(t *testing.T, requests, replies []byte) {
		start(t).exchange(string(requests), string(replies), 1<<20)
	})
}
