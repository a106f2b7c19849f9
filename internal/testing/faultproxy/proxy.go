package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fate is the treatment of messages.
type fate uint8

const (
	pass fate = iota
	swallow
	drop
	refuse
	hang
	delay
	cut
	throttle
)

// mode is immutable. Changing the mode of a proxy replaces it.
type mode struct {
	fate  fate
	close bool          // swallow: hang up afterwards
	delay time.Duration // delay
	// bytes is, for cut, how many bytes of replies still pass on each connection, and for throttle
	// how many bytes of requests pass on each connection per second.
	bytes int64
	// gone is closed when another mode replaces this one.
	gone chan struct{}
}

// Pass forwards everything. It is the initial mode.
func (p *Proxy) Pass() { p.setMode(mode{fate: pass}) }

// SwallowReplies forwards requests and discards the replies, on existing and new connections. With
// thenClose the client sees the end of the connection in place of the first reply, and its data is
// still forwarded until it closes its side too. Without thenClose the client waits forever.
func (p *Proxy) SwallowReplies(thenClose bool) { p.setMode(mode{fate: swallow, close: thenClose}) }

// DropRequests discards requests: the server never sees them, and the client waits forever.
func (p *Proxy) DropRequests() { p.setMode(mode{fate: drop}) }

// Refuse resets new connections immediately. Existing ones continue: see [Proxy.CloseAll].
func (p *Proxy) Refuse() { p.setMode(mode{fate: refuse}) }

// Hang holds back all messages, in both directions. Nothing is lost: they are delivered when the
// mode changes.
func (p *Proxy) Hang() { p.setMode(mode{fate: hang}) }

// Delay holds back each reply for d before it is delivered, together with the replies that arrived
// with it.
func (p *Proxy) Delay(d time.Duration) { p.setMode(mode{fate: delay, delay: d}) }

// CutAfter lets n bytes of replies pass on each connection, counted from now, and then closes it.
func (p *Proxy) CutAfter(n int64) { p.setMode(mode{fate: cut, bytes: n}) }

// Throttle lets n bytes of requests per second pass on each connection, like a slow server.
func (p *Proxy) Throttle(n int64) { p.setMode(mode{fate: throttle, bytes: n}) }

func (p *Proxy) setMode(m mode) {
	m.gone = make(chan struct{})
	close(p.mode.Swap(&m).gone)
}

// rule is a fault for the next requests that match and that the mode lets reach the server.
type rule struct {
	match []byte
	left  int   // requests still to match, under Proxy.mu
	open  int   // replies still to lose, under Proxy.mu
	keep  int64 // bytes of the reply that are delivered
	close bool  // hang up afterwards
	fired chan struct{}
}

// SwallowNext forwards the next request that contains the given bytes, on any connection, discards
// its reply once the server has sent it, and hangs up. New connections work as usual. The channel
// is closed when the reply has been discarded, so that a test can wait until the server has
// executed the request.
func (p *Proxy) SwallowNext(match string) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: 1, close: true})
}

// SwallowMatching is [Proxy.SwallowNext] for the next k such requests; the channel is closed after
// the last one. With thenClose false the connections stay open but deliver nothing more.
func (p *Proxy) SwallowMatching(match string, k int, thenClose bool) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: k, close: thenClose})
}

// CutNext delivers only the first n bytes of the reply to the next request that contains the given
// bytes, and closes the connection. The channel is closed once that has happened.
func (p *Proxy) CutNext(match string, n int64) <-chan struct{} {
	return p.addRule(rule{match: []byte(match), left: 1, keep: n, close: true})
}

func (p *Proxy) addRule(r rule) <-chan struct{} {
	r.fired, r.open = make(chan struct{}), r.left
	if r.left < 1 {
		close(r.fired)
		return r.fired
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &r)
	return r.fired
}

// ruleFor returns the first rule that matches the request and counts the match, or returns nil.
func (p *Proxy) ruleFor(request []byte) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range p.rules {
		if !bytes.Contains(request, r.match) {
			continue
		}
		if r.left--; r.left == 0 {
			p.rules = slices.Delete(p.rules, i, i+1)
		}
		return r
	}
	return nil
}

// lost records that a rule has been applied to a reply.
func (p *Proxy) lost(r *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.open--; r.open == 0 {
		close(r.fired)
	}
}

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

// Proxy forwards connections to one server, with the faults that a test asks for.
type Proxy struct {
	target   string
	raw      bool
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	mode     atomic.Pointer[mode]
	counters counters
	shift    atomic.Int64 // of the time, in nanoseconds

	mu    sync.Mutex
	conns map[*conn]struct{} // nil once closed
	rules []*rule
}

// Stats counts events since the start.
type Stats struct {
	// Accepted counts connections, Refused the ones that were reset immediately, and Open the ones
	// that are open now.
	Accepted, Refused, Open int64
	// Requests counts requests sent to the server, and Dropped the discarded ones.
	Requests, Dropped int64
	// Replies counts replies sent to the client, and Swallowed the ones that were discarded or cut.
	Replies, Swallowed int64
	// BytesUp were sent to the server, BytesDown to the client.
	BytesUp, BytesDown int64
}

type counters struct {
	accepted, refused, open atomic.Int64
	requests, dropped       atomic.Int64
	replies, swallowed      atomic.Int64
	bytesUp, bytesDown      atomic.Int64
}

// New starts a proxy for a Redis server at host:port or at the path of a Unix socket, and closes it
// at the end of the test. The server doesn't need to be up.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	return open(t, target, false)
}

// NewRaw is [New] for other protocols and for TLS: a message is the result of one read, and the
// reply to a request is the server's next message.
func NewRaw(t testing.TB, target string) *Proxy {
	t.Helper()
	return open(t, target, true)
}

func open(t testing.TB, target string, raw bool) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: listen: %v", err)
	}
	p := &Proxy{target: target, raw: raw, listener: l, conns: make(map[*conn]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mode.Store(&mode{fate: pass, gone: make(chan struct{})})
	p.running.Add(1)
	go p.runAccept()
	t.Cleanup(p.Close)
	return p
}

// Addr returns the host:port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stats returns a snapshot of the counters.
func (p *Proxy) Stats() Stats {
	c := &p.counters
	return Stats{
		Accepted: c.accepted.Load(), Refused: c.refused.Load(), Open: c.open.Load(),
		Requests: c.requests.Load(), Dropped: c.dropped.Load(),
		Replies: c.replies.Load(), Swallowed: c.swallowed.Load(),
		BytesUp: c.bytesUp.Load(), BytesDown: c.bytesDown.Load(),
	}
}

// CloseAll resets all connections that are currently open.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLocked()
}

func (p *Proxy) resetLocked() {
	for c := range p.conns {
		c.reset()
	}
}

// Close stops listening, resets all connections and waits for all goroutines. It may be called
// twice.
func (p *Proxy) Close() {
	p.cancel()
	// A second Close fails here, which is fine.
	_ = p.listener.Close()
	p.mu.Lock()
	p.resetLocked()
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
}

// runAccept accepts connections until the listener is closed.
func (p *Proxy) runAccept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.counters.accepted.Add(1)
		c := &conn{p: p, client: client, done: make(chan struct{})}
		if p.mode.Load().fate == refuse || !p.add(c) {
			p.counters.refused.Add(1)
			c.reset()
			continue
		}
		p.running.Add(1)
		go c.runConn()
	}
}

// add registers the connection unless the proxy is being closed.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	p.conns[c] = struct{}{}
	p.counters.open.Add(1)
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	p.counters.open.Add(-1)
}

func (p *Proxy) dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(p.ctx, network, p.target)
	if err != nil {
		return nil, fmt.Errorf("dial server: %w", err)
	}
	return conn, nil
}
