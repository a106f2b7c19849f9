package faultproxy

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Mishaps starts a proxy in front of an HTTP server, like a load balancer, and returns its address.
// It causes a fault for the first requests that have one of these words in their body:
//
//   - "closed": the answer announces the end of the connection.
//   - "repeated": the answer is lost. The next request is refused, as by a server that has no
//     memory to read it.
//   - "reset": the request is passed on, and the proxy sends an answer instead of the server's, in
//     JSON, with 503.
//   - "gateway": the same as text, with 502.
//
// The proxy ends with the test.
func Mishaps(t testing.TB, server string) (address string) {
	m := &mishaps{server: "http://" + server, seen: map[string]int{}}
	front := httptest.NewServer(m)
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

type mishaps struct {
	server string
	mu     sync.Mutex
	seen   map[string]int // how many requests have had the word
}

// busy is the answer of a server that refuses a request before looking at its session.
const busy = `{"type":"urn:twotier:problem:unavailable","title":"Service unavailable",` +
	`"status":503,"detail":"no memory; nothing was done","retry_after_ms":10}`

func (m *mishaps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch word, nth := m.word(body); {
	case word == "closed" && nth == 1:
		w.Header().Set("Connection", "close")
	case word == "repeated" && nth == 1:
		m.pass(httptest.NewRecorder(), r, body)
		panic(http.ErrAbortHandler) // the connection ends without an answer
	case word == "repeated" && nth == 2:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, busy)
		return
	case word == "reset" && nth == 1:
		m.pass(httptest.NewRecorder(), r, body)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"message":"reset before headers","status":"error"}`)
		return
	case word == "gateway" && nth == 1:
		m.pass(httptest.NewRecorder(), r, body)
		http.Error(w, "Bad Gateway", http.StatusBadGateway)
		return
	}
	m.pass(w, r, body)
}

// word returns the word that a body contains, if any, and how many bodies have contained it.
func (m *mishaps) word(body []byte) (word string, nth int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, word := range []string{"closed", "repeated", "reset", "gateway"} {
		if strings.Contains(string(body), word) {
			m.seen[word]++
			return word, m.seen[word]
		}
	}
	return "", 0
}

// pass lets the server answer.
func (m *mishaps) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	to, err := http.NewRequestWithContext(r.Context(), r.Method, m.server+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	to.Header = r.Header.Clone()
	answer, err := http.DefaultTransport.RoundTrip(to)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	closes := w.Header().Get("Connection")
	maps.Copy(w.Header(), answer.Header)
	if closes != "" {
		w.Header().Set("Connection", closes)
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}
