package httpapi_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
)

// forwardedHeader is a request of a proxy with a header of about n bytes.
func forwardedHeader(n int) string {
	r := "GET /v1/forward-auth?rule=sms HTTP/1.1\r\nHost: localhost\r\n"
	for i := 0; len(r) < n; i++ {
		r += fmt.Sprintf("X-%d: %s\r\n", i, strings.Repeat("x", min(3000, max(0, n-len(r)-20))))
	}
	return r + "\r\n"
}

// sendInPieces writes text in random pieces, some of which are sent separately.
func sendInPieces(t *testing.T, c net.Conn, rnd *rand.Rand, text string) {
	t.Helper()
	for pieces := rnd.IntN(5); len(text) > 0; pieces-- {
		n := len(text)
		if pieces > 0 {
			n = 1 + rnd.IntN(n)
		}
		if _, err := c.Write([]byte(text[:n])); err != nil {
			t.Fatal(err)
		}
		if text = text[n:]; text != "" && rnd.IntN(2) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestLongHeaders sends headers of all lengths, in pieces, on persistent connections. Each request
// is executed once, whatever its neighbors are, and then holds no memory.
func TestLongHeaders(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	f := newFake()
	s, addr := open(t, httpapi.Options{Service: f, Rules: testRules{}})
	c := dial(t, addr)
	r := bufio.NewReader(c)
	counted := 0
	for range 60 {
		switch rnd.IntN(4) {
		case 0:
			sendInPieces(t, c, rnd, rawAdd(`{"key":"127.0.0.1","ns":"sms"}`))
			if code, body := answer(t, r); code != 200 {
				t.Fatal(code, body)
			}
			counted++
		default:
			n := []int{100, 8000, 8191, 8192, 8193, 9000, 20_000, 65_000}[rnd.IntN(8)]
			sendInPieces(t, c, rnd, forwardedHeader(n+rnd.IntN(2)))
			code, body := answer(t, r)
			if code != 200 && code != 429 || !strings.Contains(body, `"allowed":`) {
				t.Fatalf("a header of %d bytes: %d %s", n, code, body)
			}
			if code == 200 {
				counted++
			}
		}
	}
	if got := f.get("127.0.0.1"); got != int64(counted) {
		t.Errorf("counted %d, want %d", got, counted)
	}
	for by := time.Now().Add(10 * time.Second); s.Reading() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(by) {
			t.Fatalf("%d bytes are taken by requests that were answered", s.Reading())
		}
	}
	sendInPieces(t, c, rnd, forwardedHeader(70_000))
	if code, body := answer(t, r); code != 431 || !strings.Contains(body, "want at most 64 KiB") {
		t.Errorf("a header of 70,000 bytes: %d %s", code, body)
	}
}

// TestLongHeadersOfStrangers begins headers on many connections and ends none: they take no more
// memory than one address may, and requests of others are served.
func TestLongHeadersOfStrangers(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake(), Rules: testRules{},
		Limits: listener.Limits{MaxMemory: 16 << 20, RequestTimeout: 100 * time.Millisecond}})
	var conns []net.Conn
	for range 60 {
		c := dial(t, addr)
		fmt.Fprint(c, strings.TrimSuffix(forwardedHeader(60_000), "\r\n"))
		conns = append(conns, c)
	}
	ended := map[int]int{}
	for _, c := range conns[:40] { // the others wait for the end of their headers
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			ended[503]++
		}
	}
	if most := int64(16<<20) / 2 / 4; s.Reading() > most {
		t.Errorf("%d bytes are taken by one address, want at most %d", s.Reading(), most)
	}
	if ended[503] < 20 {
		t.Errorf("%d of 40 were refused", ended[503])
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+addr+"/v1/forward-auth?rule=sms", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cookie", strings.Repeat("x", 30_000))
	res, err := from(t, "127.0.0.2").Do(request)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("another address: %d", res.StatusCode)
	}
}
