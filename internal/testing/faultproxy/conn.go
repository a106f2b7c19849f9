package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// conn is a connection from a client, paired with its connection to the server.
type conn struct {
	p      *Proxy
	client net.Conn
	done   chan struct{} // closed by hangUp

	mu     sync.Mutex
	server net.Conn // nil until dialled
	closed bool
	asked  []question // requests that have not been answered, in order
}

// question is a request whose reply is outstanding.
type question struct {
	rule *rule // the rule that matched the request, or nil
	time bool  // the request is TIME
}

// runConn connects to the server and forwards until both sides are done.
func (c *conn) runConn() {
	defer c.p.running.Done()
	defer c.p.remove(c)
	server, err := c.p.dial()
	if err != nil || !c.connected(server) {
		c.reset()
		return
	}
	defer c.hangUp()
	c.p.running.Add(1)
	up := make(chan struct{})
	go c.runUp(server, up)
	c.down(server)
	<-up
}

// connected stores the connection to the server. It reports false if the client's connection has
// been closed in the meantime.
func (c *conn) connected(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// runUp forwards requests until the client hangs up.
func (c *conn) runUp(server net.Conn, finished chan<- struct{}) {
	defer c.p.running.Done()
	defer close(finished)
	out := &stream{conn: server, bytes: &c.p.counters.bytesUp}
	in := bufio.NewReader(flushFirst{from: c.client, to: out})
	lost := false
	for {
		frame, readErr := c.read(in)
		m, ok := c.await(nil)
		if !ok {
			return
		}
		switch {
		case len(frame) == 0:
		case lost || m.fate == drop:
			lost = true
			c.p.counters.dropped.Add(1)
		default:
			if !c.hold(m, len(frame)) {
				return
			}
			c.ask(frame)
			c.p.counters.requests.Add(1)
			// If the server is gone, the other direction notices and decides how the client learns
			// of it.
			lost = out.write(frame) != nil
		}
		if readErr != nil {
			out.closeWrite()
			return
		}
	}
}

// down forwards replies until the server hangs up. Then it hangs up on the client too, unless the
// mode makes the client wait forever.
func (c *conn) down(server net.Conn) {
	d := downstream{c: c, out: &stream{conn: c.client, bytes: &c.p.counters.bytesDown}}
	in := bufio.NewReader(flushFirst{from: server, to: d.out})
	for {
		frame, readErr := c.read(in)
		m, ok := c.await(d.out)
		if !ok {
			return
		}
		if len(frame) > 0 {
			d.deliver(m, frame)
		}
		if readErr != nil {
			err := d.out.flush()
			// A client that has lost a reply must not see the server's end either.
			if d.ended || err == nil && !d.lost && m.fate != swallow {
				c.hangUp()
			}
			return
		}
	}
}

func (c *conn) read(in *bufio.Reader) ([]byte, error) {
	if c.p.raw {
		return readRaw(in)
	}
	return readRESP(in)
}

// await waits until the mode lets messages move and returns it, or returns false if the connection
// is closed first. If out is not nil and has nothing waiting, it also waits for the mode's delay.
func (c *conn) await(out *stream) (*mode, bool) {
	for {
		m := c.p.mode.Load()
		var later <-chan time.Time
		switch {
		case m.fate == hang:
		case m.fate == delay && out != nil && len(out.waiting) == 0:
			later = time.After(m.delay)
		default:
			return m, true
		}
		select {
		case <-later:
			return m, true
		case <-m.gone:
		case <-c.done:
			return nil, false
		}
	}
}

// hold delays a request of that many bytes if the mode throttles. It reports false if the
// connection is closed meanwhile.
func (c *conn) hold(m *mode, bytes int) bool {
	if m.fate != throttle {
		return true
	}
	timer := time.NewTimer(time.Duration(float64(bytes) / float64(m.bytes) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.gone:
	case <-c.done:
		return false
	}
	return true
}

// ask records a request before the server can see it, so that the entry is there when the reply
// comes.
func (c *conn) ask(request []byte) {
	r := c.p.ruleFor(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	// A raw proxy can't detect the end of a reply, so it only records requests that match a rule.
	if r != nil || !c.p.raw {
		c.asked = append(c.asked, question{r, !c.p.raw && asksTime(request)})
	}
}

// answered removes and returns the oldest request without a reply, or a zero question.
func (c *conn) answered() (q question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) > 0 {
		q, c.asked = c.asked[0], c.asked[1:]
	}
	return q
}

// hangUp closes both sides.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}

// reset closes both sides, with a reset for the client.
func (c *conn) reset() {
	if tcp, ok := c.client.(*net.TCPConn); ok {
		// SetLinger fails only if the connection is already closed.
		_ = tcp.SetLinger(0)
	}
	c.hangUp()
}
