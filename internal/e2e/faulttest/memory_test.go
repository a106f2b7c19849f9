package faulttest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// The values of --max-memory for attacks on memory: a low one for attacks that fill it with keys.
const (
	attackedMemory = 64 << 20
	floodedMemory  = 16 << 20
)

// attack attacks a node from one address. It returns once the attack has begun. felt reports
// whether the node shows its effect.
type attack func(a *attacker) (felt func() bool)

// attacker holds connections to a node.
type attacker struct {
	t    *testing.T
	node *proctest.Process
	to   string // the address that is attacked
	from string // the address of the attacker, or "" for any
	open []net.Conn
}

// dial connects from the address of the attacker.
func (a *attacker) dial() net.Conn {
	a.t.Helper()
	conn, err := dialer(a.from).Dial("tcp4", a.to)
	must.Succeed(a.t, err)
	a.open = append(a.open, conn)
	return conn
}

// each opens n connections and sends the same parts on each without reading. The node may hang up
// at any byte.
func (a *attacker) each(n int, parts ...string) {
	a.t.Helper()
	for range n {
		conn := a.dial()
		// A small buffer, so that unread answers stay with the node.
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		go func() {
			_ = conn.SetWriteDeadline(time.Now().Add(proctest.Patience))
			for _, part := range parts {
				if _, err := io.WriteString(conn, part); err != nil {
					return
				}
			}
		}()
	}
}

// memoryTaken reports whether much of the memory for requests is in use.
func (a *attacker) memoryTaken() bool {
	return a.node.Metric("twotier_http_memory_bytes", "") > 1<<20
}

// connected reports whether there are many connections.
func (a *attacker) connected() bool { return a.node.Metric("twotier_http_connections", "") > 100 }

// refused reports whether requests have been answered with that status.
func (a *attacker) refused(status int) bool {
	_, page := a.node.Get("/metrics")
	return strings.Contains(string(page),
		fmt.Sprintf("twotier_http_requests_total{code=%q}", fmt.Sprint(status)))
}

func (a *attacker) hangUp() {
	for _, conn := range a.open {
		conn.Close()
	}
}

// holdOut attacks a node for a while, and checks that it stays within its memory and serves other
// clients meanwhile.
func holdOut(t *testing.T, memory int64, do attack, args ...string) {
	t.Helper()
	t.Parallel()
	node := program.Serve(t, proctest.Options{},
		append([]string{"--max-memory", fmt.Sprint(memory)}, args...)...)
	others := proctest.StartOrdinary(t, node)
	others.Answers(200)
	before := node.Memory()
	a := &attacker{t: t, node: node, to: node.Listen}
	defer a.hangUp()
	proctest.Until(t, "the attack is felt", do(a))
	others.Answers(2000)
	during := node.Memory()
	line := others.Stop()
	most := memory*13/10 + 64<<20
	t.Logf("before %d MiB, at the most %d MiB of %d MiB; %s", before.Now>>20, during.Peak>>20,
		most>>20, line)
	measuresMemory(t)
	if during.Peak > most {
		t.Errorf("%v resident; --max-memory %d MiB allows %d MiB", during, memory>>20, most>>20)
	}
}

// post is a request without its body.
func post(path string, size int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n", path, size)
}

// manyWindows returns a batch of that many bytes with the longest possible answer.
func manyWindows(size int) string {
	windows := make([]string, 64)
	for i := range windows {
		windows[i] = fmt.Sprint(i+1, "s")
	}
	op := `{"op":"count","key":"k","window":"` + strings.Join(windows, ",") + `"},`
	ops := strings.Repeat(op, (size-100)/len(op))
	return `{"ops":[` + strings.TrimSuffix(ops, ",") + `]}`
}

// TestAttackAnswersThatNobodyReads asks for the longest possible answers, and for as many answers
// as are not refused, and reads none.
func TestAttackAnswersThatNobodyReads(t *testing.T) {
	longest, long := manyWindows(1<<20), manyWindows(16<<10)
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(150, strings.Repeat(post("/v1/batch", len(long))+long, 10))
		a.each(20, post("/v1/batch", len(longest)), longest)
		return a.memoryTaken
	})
}

func TestAttackUnfinishedBodies(t *testing.T) {
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(600, post("/v1/batch", 1<<20), strings.Repeat(" ", 1<<20-1))
		return a.memoryTaken
	})
}

func TestAttackUnfinishedChunks(t *testing.T) {
	takesLong(t)
	head := "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n", 1<<20)
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(600, head, strings.Repeat(" ", 1<<20-1))
		return a.memoryTaken
	})
}

func TestAttackBodiesOfStrangersToPeers(t *testing.T) {
	takesLong(t)
	head := strings.Replace(post("/peer", 4<<20), "application/json",
		"application/x-twotier-peer", 1)
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(150, head, strings.Repeat("x", 4<<20-1))
		return func() bool { return a.refused(403) }
	}, "--redis", "redis://"+redistest.Start(t).Addr(), "--gossip", "127.0.0.1:0",
		"--cluster-secret", "a secret of 16 and more")
}

func TestAttackIdleConnections(t *testing.T) {
	takesLong(t)
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(3000, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return a.connected
	})
}

// TestIdleConnectionsTakeLittle keeps as many connections idle as one address may have by default.
// Each must take a third of the memory that serving it takes, and is served again afterwards.
func TestIdleConnectionsTakeLittle(t *testing.T) {
	takesLong(t)
	measuresMemory(t)
	t.Parallel()
	node := program.Serve(t, proctest.Options{})
	a := &attacker{t: t, node: node, to: node.Listen}
	defer a.hangUp()
	conns, each := 4000, int64(12<<10)
	before := node.Memory().Now
	request := []byte(post("/v1/add", 11) + `{"key":"k"}`)
	answer := make([]byte, 4096)
	for i := range 2 * conns {
		if i < conns {
			a.dial()
		}
		conn := a.open[i%conns]
		_ = conn.SetDeadline(time.Now().Add(proctest.Patience))
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(answer); err != nil ||
			!strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200") {
			t.Fatalf("request %d: %s, %v", i, answer[:n], err)
		}
	}
	more := node.Memory().Now - before
	t.Logf("%d idle connections take %d MiB, %d bytes each", conns, more>>20, more/int64(conns))
	if more > int64(conns)*each {
		t.Errorf("%d idle connections take %d bytes, want at most %d each", conns, more, each)
	}
}

func TestAttackSlowHeaders(t *testing.T) {
	takesLong(t)
	head := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 8000)
	holdOut(t, attackedMemory, func(a *attacker) func() bool {
		a.each(3000, head)
		return a.connected
	})
}

// newKeys counts events of that many new keys, in batches, over a few connections.
func (a *attacker) newKeys(keys int) {
	a.t.Helper()
	const most, conns = 1000, 4
	var sent atomic.Int64
	var sending sync.WaitGroup
	for range conns {
		sending.Go(func() {
			for at := sent.Add(most); at <= int64(keys); at = sent.Add(most) {
				ops := make([]string, most)
				for i := range ops {
					ops[i] = fmt.Sprintf(
						`{"op":"add","key":"a key that nobody knows %d","limits":[{"window":"1m","max":9}]}`, at+int64(i))
				}
				if _, _, err := a.node.Post("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+
					`]}`); err != nil {
					a.t.Errorf("a batch of new keys: %v", err)
					return
				}
			}
		})
	}
	sending.Wait()
}

func TestAttackNewKeys(t *testing.T) {
	takesLong(t)
	holdOut(t, floodedMemory, func(a *attacker) func() bool {
		a.newKeys(100_000)
		return func() bool { return a.node.Metric("twotier_memory_bytes", "") > floodedMemory*3/4 }
	}, "--redis", "redis://"+redistest.Start(t).Addr(), "--max-lag", "0", // only memory bounds them
		"--request-timeout", proctest.Patience.String())
}
