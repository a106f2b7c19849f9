package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/must"
)

// TestIdleConnectionsAreParked leaves connections idle until they are parked. They are served
// again, also with two requests in one segment, and end with the server.
func TestIdleConnectionsAreParked(t *testing.T) {
	f := newFake()
	s, addr := open(t, httpapi.Options{Service: f})
	var conns []net.Conn
	var readers []*bufio.Reader
	for range 20 {
		c := dial(t, addr)
		conns, readers = append(conns, c), append(readers, bufio.NewReader(c))
	}
	for round := range 3 {
		for i, c := range conns {
			fmt.Fprint(c, rawAdd(`{"key":"k"}`)+rawAdd(`{"key":"k"}`))
			for range 2 {
				if code, body := answer(t, readers[i]); code != 200 {
					t.Fatalf("round %d: %d %s", round, code, body)
				}
			}
		}
		for deadline := time.Now().
			Add(10 * time.Second); s.Awake() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are taken by connections that are idle", s.Awake())
			}
		}
	}
	if got := f.get("k"); got != 120 {
		t.Errorf("counted %d, want 120", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for i := range conns {
		if _, err := readers[i].ReadByte(); err != io.EOF {
			t.Errorf("after the server's end: %v, want %v", err, io.EOF)
		}
	}
}

// TestParkedConnectionsEnd when their idle timeout is over.
func TestParkedConnectionsEnd(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{IdleTimeout: 300 * time.Millisecond}})
	c := dial(t, addr)
	fmt.Fprint(c, rawAdd(`{"key":"k"}`))
	r := bufio.NewReader(c)
	if code, body := answer(t, r); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the idle timeout: %q, %v", rest, err)
	}
}

// TestLargeAnswersAreTheirOwn sends two batches at a time over each of several connections. Answers
// are not copied before they are written, so each must have separate memory until then.
func TestLargeAnswersAreTheirOwn(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake()})
	const conns, rounds, ops = 8, 20, 300
	var running sync.WaitGroup
	for i := range conns {
		running.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			answers := bufio.NewReader(c)
			for round := range rounds {
				keys := [2]string{fmt.Sprintf("first-%d-%d", i, round),
					fmt.Sprintf("second-%d-%d", i, round)}
				go func() {
					for _, key := range keys {
						body := strings.ReplaceAll(adds(ops), `"k"`, `"`+key+`"`)
						fmt.Fprintf(c, "POST /v1/batch HTTP/1.1\r\nHost: "+
							"localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					}
				}()
				for _, key := range keys {
					if err := answeredWith(answers, key, ops); err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
				}
			}
		})
	}
	running.Wait()
	eventually(t, func() bool { return s.Taken().Bytes == 0 }, "everything is given back")
}

// answeredWith reads an answer to so many operations on one key.
func answeredWith(r *bufio.Reader, key string, ops int) error {
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if n := strings.Count(string(body), `{"key":"`+key+`"`); err == nil &&
		(res.StatusCode != 200 || n != ops) {
		err = fmt.Errorf("%d with %d results: %.200s", res.StatusCode, n, body)
	}
	return err
}

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
	must.Succeed(t, err)
	request.Header.Set("Cookie", strings.Repeat("x", 30_000))
	res, err := from(t, "127.0.0.2").Do(request)
	must.Succeed(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("another address: %d", res.StatusCode)
	}
}

// TestHeadersGivenTwice: a request that gives a header twice of which one value counts is refused,
// whichever of them a proxy has believed. Nothing is counted.
func TestHeadersGivenTwice(t *testing.T) {
	const body = `{"key":"k"}`
	length := fmt.Sprint(len(body))
	for _, tt := range []struct{ name, first, second string }{
		{"Host", "localhost", "localhost:1"},
		{"Content-Length", length, length},
		{"Content-Type", "text/plain", "application/json"},
		{"content-type", "application/json", "text/plain"},
		{"Content-Type", "application/json", "application/json"},
		{"Content-Encoding", "", "gzip"},
		{"Transfer-Encoding", "chunked", "chunked"},
		{"Origin", "", "http://page.example"},
		{"Authorization", "Bearer a", "Bearer b"},
		{"If-Match", "*", `"1"`},
		{"Twotier-Session", strings.Repeat("a", 16), strings.Repeat("b", 16)},
		{"Twotier-Sequence", "1", "2"},
		{"Twotier-Process", "", "p"},
		{"Twotier-Timeout", "1000", "1"},
		{"Twotier-Pass", "a", "b"},
	} {
		f := newFake()
		_, addr := open(t, httpapi.Options{Service: f})
		header := fmt.Sprintf("%s: %s\r\n%s: %s\r\n", tt.name, tt.first, strings.ToUpper(tt.name),
			tt.second)
		for name, value := range map[string]string{"Host": "localhost", "Content-Length": length} {
			if name != tt.name && (tt.name != "Transfer-Encoding" || name == "Host") {
				header += name + ": " + value + "\r\n"
			}
		}
		c := dial(t, addr)
		_, _ = io.WriteString(c, "POST /v1/add HTTP/1.1\r\n"+header+"\r\n"+body)
		if status, text := answer(t, bufio.NewReader(c)); status != 400 {
			t.Errorf("%s: %s and %s: %d %s", tt.name, tt.first, tt.second, status, text)
		}
		if len(f.counts) > 0 {
			t.Errorf("%s: something is counted", tt.name)
		}
	}
}

// TestForwardAuthTakesAnyHeader: a proxy forwards the headers of its client as they are.
func TestForwardAuthTakesAnyHeader(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake()})
	c := dial(t, addr)
	_, _ = io.WriteString(c, "GET /v1/forward-auth?limits=5/1m HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: a\r\nContent-Type: b\r\nOrigin: x\r\nOrigin: y\r\n\r\n")
	if status, text := answer(t, bufio.NewReader(c)); status == 400 {
		t.Errorf("%d %s", status, text)
	}
}

// TestNoValueIsAnotherSourcesKey forwards random values, many of which are keys of earlier
// requests, or parts of these. Two requests share a key only if they have the same value in the
// same source.
func TestNoValueIsAnotherSourcesKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 29))
	f := newFake()
	s := newServer(t, f)
	values := []string{"bob", "b", "203.0.113.7", "2001:db8::/64", "none", "\x80", "a=b", "%3D",
		strings.Repeat("x", 250), strings.Repeat("é", 123), "sha256:bob"}
	of := map[string]string{} // source and value of each key
	for range 3000 {
		value := values[rnd.IntN(len(values))]
		if rnd.IntN(4) == 0 {
			value = []string{"x-user=", "query:", "sha256:", "ip=", "="}[rnd.IntN(5)] + value
		}
		source := []string{"x-user", "authorization", "query:x-user", "query:x-user=a", "ip",
			"sha256:x-user", "sha256:ip", "plain:authorization"}[rnd.IntN(8)]
		header := "X-Nothing: 1"
		switch name := source[strings.LastIndex(source, ":")+1:]; {
		case name == "ip":
			value = []string{"203.0.113.7", "2001:db8::1"}[rnd.IntN(2)]
		case strings.HasPrefix(source, "query:"):
			header = "X-Forwarded-Uri: /?" + url.QueryEscape(name) + "=" + url.QueryEscape(value)
		default:
			header = name + ": " + value
		}
		from := value
		if !strings.HasSuffix(source, "ip") {
			from = "192.0.2.1"
		}
		ctx := forward(s, from, "rule=login&key="+url.QueryEscape(source), header)
		if code := ctx.Response.StatusCode(); code != 200 && code != 429 {
			t.Fatalf("%s %q: %d %s", source, header, code, ctx.Response.Body())
		}
		key := string(f.last.Checks[0].Key)
		if !request.ValidKey([]byte(key)) {
			t.Fatalf("%s of %q: %q is no key", source, value, key)
		}
		// Hashing on request and hashing out of need give the same key.
		source = strings.TrimPrefix(strings.TrimPrefix(source, "plain:"), "sha256:")
		if source == "ip" && strings.HasPrefix(key, "ip=") {
			source = "hashed ip"
		}
		stands := fmt.Sprintf("%s %q", source, value)
		if before, known := of[key]; known && before != stands {
			t.Fatalf("%q is the key of %s and of %s", key, before, stands)
		}
		of[key] = stands
		if len(values) < 60 {
			values = append(values, key, key[strings.LastIndex(key, "=")+1:])
		}
	}
}

// FuzzForwardedToForwardAuth sends any headers that a proxy can forward: there is a decision.
func FuzzForwardedToForwardAuth(f *testing.F) {
	f.Add("bob", "/a?user=b%20b", "1.2.3.4")
	f.Add("\xff\xfe\t", "/?user=%zz&&=%", "unknown, [::1, 1.2.3.4:99999")
	f.Add(strings.Repeat("x", 3000), strings.Repeat("?user=%", 500), strings.Repeat(",", 3000))
	s := newServer(f, newFake())
	f.Fuzz(func(t *testing.T, user, target, list string) {
		for _, text := range []string{user, target, list} {
			for i := range len(text) { // RFC 9110, section 5.5: a proxy has to refuse them
				if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
					t.Skip()
				}
			}
		}
		raw := "GET /v1/forward-auth?rule=login&key=X-User,query:user,ip HTTP/1.1\r\n" +
			"Host: a.example" +
			"\r\nX-User: " + user + "\r\nX-Forwarded-Uri: " + target + "\r\nX-Forwarded-For: " +
			list + "\r\n\r\n"
		var request fasthttp.Request
		in := bufio.NewReaderSize(strings.NewReader(raw), max(16, len(raw)))
		if err := request.Read(in); err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		ctx := new(fasthttp.RequestCtx)
		ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4711}, nil)
		s.Handle(ctx)
		if code := ctx.Response.StatusCode(); code != 200 && code != 429 {
			t.Errorf("%q: %d %s", raw, code, ctx.Response.Body())
		}
	})
}
