package mirror_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/mirror"
	"twotier.dev/twotier/internal/testing/must"
)

// TestForeignHosts sends requests of a page in a browser whose host name leads to the mirror: on
// loopback no route serves them, and nothing is counted.
func TestForeignHosts(t *testing.T) {
	log := newLog()
	m := open(t, mirror.Options{Twotier: log})
	ask := func(h http.Handler, method, path, host string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"key":"ann","allowed":true}`))
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://"+host)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	local := m.Handler(hostname.NewCheck(nil, false, true))
	public := m.Handler(hostname.NewCheck(nil, false, false))
	for _, route := range []string{"GET /", "HEAD /", "POST /", "GET /text", "GET /none", "PUT /"} {
		method, path, _ := strings.Cut(route, " ")
		for _, host := range []string{"evil.example", "evil.example:7910", "localhost.evil.example",
			"127.0.0.1.evil.example"} {
			if code := ask(local, method, path, host); code != http.StatusForbidden {
				t.Errorf("%s at %s: %d, want 403", route, host, code)
			}
		}
	}
	m.Close(t.Context())
	if r := m.Report(); len(log.asked) > 0 || r.Invalid > 0 {
		t.Errorf("a foreign host was served: %s", r)
	}
	for _, host := range []string{"localhost:7910", "LocalHost", "127.0.0.1", "[::1]:7910"} {
		if code := ask(local, "GET", "/", host); code != http.StatusOK {
			t.Errorf("%s: %d, want 200", host, code)
		}
	}
	if code := ask(public, "GET", "/", "mirror:7910"); code != http.StatusOK {
		t.Errorf("a mirror that other machines may reach: %d, want 200", code)
	}
}

// TestEachFieldIsBounded makes each field of a verdict as long as a body may be: it is refused, or
// a short text replaces it, and the report stays short.
func TestEachFieldIsBounded(t *testing.T) {
	log := newLog()
	m := open(t, mirror.Options{Twotier: log})
	h := m.Handler(hostname.Check{})
	long := strings.Repeat("x", 1_000_000)
	many := func(item string, n int) string {
		return strings.TrimSuffix(strings.Repeat(item+",", n), ",")
	}
	for name, body := range map[string]string{
		"ns":     `{"key":"a","ns":"` + long + `"}`,
		"rule":   `{"key":"a","rules":["` + long + `"]}`,
		"rules":  `{"key":"a","rules":[` + many(`"r"`, 200_000) + `]}`,
		"window": `{"key":"a","limits":[{"window":"` + long + `","max":1}]}`,
		"period": `{"key":"a","limits":[{"window":"month@` + long + `","max":1}]}`,
		"limits": `{"key":"a","limits":[` + many(`{"window":"1m","max":1}`, 40_000) + `]}`,
		"checks": `{"checks":[` + many(`{"key":"a"}`, 80_000) + `]}`,
		"check":  `{"checks":[{"key":"a"},{"key":"a","ns":"` + long + `"}]}`,
		"name":   `{"key":"a","` + long + `":1}`,
		"number": `{"key":"a","n":` + strings.Repeat("9", 1_000_000) + `}`,
		"text":   long,
	} {
		body := strings.TrimSuffix(body, "}") + `,"allowed":true}`
		if w := post(t, h, "application/json", body); w.Code != http.StatusBadRequest ||
			w.Body.Len() > 2<<20 {
			t.Errorf("%s: %d, %d bytes, want 400", name, w.Code, w.Body.Len())
		}
	}
	if w := post(t, h, strings.Repeat("x", 10_000), "{}"); w.Code != 415 {
		t.Errorf("Content-Type: %d", w.Code)
	}
	if w := post(t, h, "application/json", `{"key":"`+long+`","allowed":false}`); w.Code != 202 {
		t.Errorf("a long key: %d, want 202", w.Code)
	}
	m.Close(t.Context())
	if key := log.asked[0].Key; len(log.asked) != 1 || len(key) > 256 {
		t.Errorf("%d verdicts, a key of %d bytes", len(log.asked), len(key))
	}
	if text := m.Report().String(); len(text) > 4096 {
		t.Errorf("a report of %d bytes: %.300s", len(text), text)
	}
}

// serve serves a mirror with so many file descriptors, and returns the address.
func serve(t *testing.T, descriptors uint64) string {
	t.Helper()
	m := open(t, mirror.Options{Twotier: newLog()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s := m.NewServer(l, descriptors)
	must.Succeed(t, s.Open(t.Context()))
	t.Cleanup(func() {
		at, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		must.Succeed(t, s.Close(at))
	})
	return l.Addr().String()
}

// begin connects and sends the beginning of a request.
func begin(t *testing.T, address, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { c.Close() })
	must.Succeed(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, text)
	must.Succeed(t, err)
	return c
}

// status reads the status of an answer, 0 for the end of the connection.
func status(c net.Conn) (code int) {
	line, _ := bufio.NewReader(c).ReadString('\n')
	_, _ = fmt.Sscanf(line, "HTTP/1.1 %d", &code)
	return code
}

const get = "GET /text HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

// TestConnectionsAreBounded opens as many connections as one address may have, which send nothing
// or a part of a request: another one gets 429, and is served when one of them has ended.
func TestConnectionsAreBounded(t *testing.T) {
	for _, text := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n"} {
		address := serve(t, 64) // 16 connections, 8 for one address
		var held []net.Conn
		for range 8 {
			held = append(held, begin(t, address, text))
		}
		if code := status(begin(t, address, "")); code != http.StatusTooManyRequests {
			t.Errorf("one more: %d, want 429", code)
		}
		held[0].Close()
		until(t, func() bool {
			c, err := net.Dial("tcp", address)
			must.Succeed(t, err)
			defer c.Close()
			_, _ = io.WriteString(c, get) // it may be turned away
			return status(c) == http.StatusOK
		})
	}
}

// TestBodiesAreBounded begins bodies that never end: those of one address take a bounded part of
// the memory, and others get 429 until they have ended.
func TestBodiesAreBounded(t *testing.T) {
	address := serve(t, 1024)
	const head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
		"Connection: close\r\n"
	const slow = head + "Content-Length: 1048576\r\n\r\n{"
	var held []net.Conn
	codes := make(chan int, 20)
	for range cap(codes) {
		c := begin(t, address, slow)
		held = append(held, c)
		go func() { codes <- status(c) }()
	}
	for range 12 { // 8 MiB of 1 MiB each are for one address
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Fatalf("one of %d bodies: %d, want 429", len(held), code)
		}
	}
	for _, c := range held {
		c.Close()
	}
	const verdict = `{"key":"ann","allowed":true}`
	until(t, func() bool {
		return status(begin(t, address, head+fmt.Sprintf("Content-Length: %d\r\n\r\n%s",
			len(verdict), verdict))) == http.StatusAccepted
	})
}
