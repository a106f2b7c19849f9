package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
)

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
