package wire_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/bench/wire"
	"twotier.dev/twotier/internal/testing/must"
)

// serve accepts connections and has handle answer each request in raw bytes. It returns the address
// and the number of connections.
func serve(t *testing.T, handle func(r *http.Request, w io.Writer)) (string, *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	conns := new(atomic.Int64)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			wg.Go(func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					handle(r, conn)
					_, _ = io.Copy(io.Discard, r.Body)
				}
			})
		}
	})
	return l.Addr().String(), conns
}

// body builds a body, and keep reads an answer into a string.
func body(text string) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, text...) }
}

func keep(to *string) func([]byte) error {
	return func(answer []byte) error { *to = string(answer); return nil }
}

// TestBodiesArriveWhole sends bodies of all sizes in both directions, with the answer cut into
// pieces anywhere.
func TestBodiesArriveWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	addr, conns := serve(t, func(request *http.Request, w io.Writer) {
		sent, err := io.ReadAll(request.Body)
		if err != nil || request.URL.Path != "/v1/echo" || request.Method != http.MethodPost ||
			request.Header.Get("Content-Type") != "application/json" || request.Host == "" {
			t.Errorf("%s %s %v, %v", request.Method, request.URL, request.Header, err)
		}
		answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(sent), sent)
		for mu.Lock(); len(answer) > 0; {
			n := 1 + r.IntN(min(len(answer), 1+r.IntN(50_000)))
			_, _ = w.Write(answer[:n])
			answer = answer[n:]
		}
		mu.Unlock()
	})
	c := wire.NewClient(addr)
	defer c.Close()
	for i, size := range []int{0, 1, 9, 10, 12_345, 16 << 10, 70_000, 3, 1 << 20, 1234} {
		text := strings.Repeat(strconv.Itoa(i), size)
		var got string
		if err := c.Post("/v1/echo", body(text), keep(&got)); err != nil || got != text {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for calls one after the other", n)
	}
}

// TestCallsAtTheSameTime: concurrent calls have separate connections, and each gets its own answer.
func TestCallsAtTheSameTime(t *testing.T) {
	addr, conns := serve(t, func(r *http.Request, w io.Writer) {
		sent, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(sent), sent)
	})
	c := wire.NewClient(addr)
	defer c.Close()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				text, got := fmt.Sprint(w, i), ""
				if err := c.Post("/", body(text), keep(&got)); err != nil || got != text {
					t.Errorf("sent %q, got %q, %v", text, got, err)
				}
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 8 {
		t.Errorf("%d connections for 8 calls at a time", n)
	}
}

// TestFailures: a failure is an error of its call, and the next call has a working connection.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"status":      {"HTTP/1.1 429 Busy\r\nContent-Length: 4\r\n\r\nlate", "status 429: late"},
		"closing":     {"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "500"},
		"no length":   {"HTTP/1.1 200 OK\r\n\r\n", "does not state its length"},
		"chunks":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "length"},
		"length":      {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "length"},
		"not HTTP":    {"-ERR unknown command\r\n\r\n", "not an answer"},
		"two answers": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK", "after"},
		"no end":      {strings.Repeat("x", 20_000), "no end"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			addr, _ := serve(t, func(_ *http.Request, w io.Writer) {
				answer := c.answer
				if calls.Add(1) > 1 {
					answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
				}
				_, _ = io.WriteString(w, answer)
				if strings.Contains(answer, "Connection: close") {
					_ = w.(net.Conn).Close()
				}
			})
			client, got := wire.NewClient(addr), ""
			defer client.Close()
			err := client.Post("/", body("{}"), keep(&got))
			if err == nil || !strings.Contains(err.Error(), c.want) || got != "" {
				t.Errorf("%q, %v", got, err)
			}
			if err := client.Post("/", body("{}"), keep(&got)); err != nil || got != "OK" {
				t.Errorf("the next call: %q, %v", got, err)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	if err := wire.NewClient("127.0.0.1:1").Post("/", body(""), nil); err == nil {
		t.Error("posted to nobody")
	}
}

// TestPostAllocatesNothing: a call allocates nothing once its connection has been made.
func TestPostAllocatesNothing(t *testing.T) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for b := make([]byte, 4096); ; {
			if n, err := conn.Read(b); err != nil || !bytes.HasSuffix(b[:n], []byte("{}")) {
				return
			}
			_, _ = conn.Write(answer)
		}
	}()
	c := wire.NewClient(l.Addr().String())
	defer c.Close()
	build, read := body("{}"), func([]byte) error { return nil }
	if n := testing.AllocsPerRun(200, func() {
		must.Succeed(t, c.Post("/v1/add", build, read))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
