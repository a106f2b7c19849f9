package faulttest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// small sets little memory and few partitions.
var small = [...]string{"--partitions", "8", "--max-memory", "1MiB"}

// smallMemory is the --max-memory of small. The last chunk of each partition may exceed it, up to
// twice as much in all.
const smallMemory = 1 << 20

// flood adds one event to each of n new keys, in batches, and returns how many were refused, and
// the last refusal.
func (b *bed) flood(name string, n int) (turnedAway int64, why string) {
	b.T.Helper()
	const most = 500
	for at := 0; at < n; at += most {
		var keys, ops []string
		for i := at; i < min(n, at+most); i++ {
			key := fmt.Sprint(name, "-", i)
			keys, ops = append(keys, key), append(ops, fmt.Sprintf(`{"op":"add","key":%q}`, key))
			b.Ledger.Sending(key, 1)
		}
		var answers struct{ Results []proctest.Answer }
		err := b.node.Ask("/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`, &answers)
		if err != nil || len(answers.Results) != len(keys) {
			b.T.Fatalf("%v, %d results", err, len(answers.Results))
		}
		for i, a := range answers.Results {
			switch {
			case a.Error == nil:
				b.Ledger.Note(keys[i], 1, proctest.Acked)
			case a.Error.Outcome == "unknown":
				b.Ledger.Note(keys[i], 1, proctest.Unknown)
			default:
				b.Ledger.Note(keys[i], 1, proctest.Refused)
				turnedAway++
				why = fmt.Sprint(a.Error.Status, " ", a.Error.Detail)
			}
		}
	}
	return turnedAway, why
}

func (b *bed) bounded() {
	b.T.Helper()
	if n := b.node.Metric("twotier_memory_bytes", ""); n > 2*smallMemory {
		b.T.Errorf("%d bytes for counts, --max-memory is %d", n, smallMemory)
	}
}

func TestFault19FloodOfNewKeys(t *testing.T) {
	takesLong(t)
	b := newBed(t, nil, small[:]...)
	tr := b.Traffic()
	tr.Accept(200)
	for wave := range 4 {
		// A machine that stands still for a moment makes the node refuse some keys: soon there must
		// be room for the same number of new ones.
		left := int64(4000)
		proctest.Until(t, "there is room for new keys", func() bool {
			n, why := b.flood(fmt.Sprint("flood-", wave, "-", left), int(left))
			if n > 0 {
				t.Logf("%d of %d refused: %s", n, left, why)
			}
			left = n
			b.bounded()
			return left == 0
		})
	}
	// Idle keys make room for new ones.
	proctest.Until(t, "keys are evicted", func() bool {
		b.flood(fmt.Sprint("more-", rand.Uint64()), 50)
		return b.node.Metric("twotier_evictions_total", "") > 0
	})
	tr.Accept(200)
	tr.Stop()
	b.bounded()
	b.settle("19 a flood of new keys", 0)
	b.bounded()
}

func TestFault19FloodWithRedisDown(t *testing.T) {
	b := newBed(t, nil, small[:]...)
	tr := b.Traffic()
	tr.Accept(600)
	b.Barrier()
	b.redis.Kill()
	b.degraded()
	turnedAway, why := b.flood("flood", 16_000)
	if turnedAway == 0 || !strings.HasPrefix(why, "429") {
		t.Errorf("%d refused: %s, want some with 429", turnedAway, why)
	}
	status, body, err := b.node.Post("/v1/add", fmt.Sprintf(`{"key":"one-more-%d"}`, rand.Uint64()))
	t.Logf("one more new key: %d %s %v", status, body, err)
	b.bounded()
	before, _, _ := b.Ledger.Totals()
	tr.Accept(300)
	if o := tr.Add(proctest.HotKey, 1, false); o != proctest.Acked {
		t.Errorf("a key in memory is refused: %d", o)
	}
	if after, _, _ := b.Ledger.Totals(); after < before+300 {
		t.Error("keys in memory don't count")
	}
	b.redis.Restart(t)
	tr.Accept(200)
	tr.Stop()
	b.settle("19 a flood with Redis down", 0)
	b.bounded()
}

func TestFault19HotKey(t *testing.T) {
	b := newBed(t, nil)
	tr := (&proctest.Traffic{T: t, Ledger: b.Ledger}).To(b.node.Base).Open()
	for i := range 8 {
		tr.Go(func() {
			for j := range 250 {
				tr.Add(proctest.HotKey, 1+rand.Int64N(1000), i == 0 && j%10 == 0)
			}
		})
	}
	tr.Stop()
	b.settle("19 one hot key", 0)
}

// TestFault19BadClients lets clients send garbage, stop halfway or never read, while others count.
func TestFault19BadClients(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	const request = "POST /v1/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
		"application/json\r\nContent-Length: 20\r\n\r\n"
	var open []net.Conn
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", b.node.Listen)
		must.Succeed(t, err)
		open = append(open, conn)
		return conn
	}
	for i := range 60 {
		conn := dial()
		switch i % 6 {
		case 0: // garbage
			junk := make([]byte, 2000)
			for j := range junk {
				junk[j] = byte(rand.IntN(256))
			}
			_, _ = conn.Write(junk) // it may hang up at any byte
		case 1: // half a header, for ever
			_, _ = io.WriteString(conn, request[:40])
		case 2: // half a body, for ever
			_, _ = io.WriteString(conn, request+`{"key":"hot"`)
		case 3: // half a body, then gone
			_, _ = io.WriteString(conn, request+`{"key":"hot"`)
			conn.Close()
		case 4: // many requests, no answer read
			for range 200 {
				_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
			}
		case 5: // malformed, one byte at a time
			for _, c := range []byte(request + `{"key":"hot","n":-}}`) {
				_, _ = conn.Write([]byte{c})
			}
		}
	}
	tr.Pass(400)
	for _, conn := range open {
		conn.Close()
	}
	tr.Pass(50)
	tr.Stop()
	b.settle("19 bad clients", 0)
	b.node.HTTP.CloseIdleConnections()
	proctest.Until(t, "their connections are gone",
		func() bool { return b.node.Metric("twotier_http_connections", "") < 5 })
}
