package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
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

// stream buffers messages until there is nothing more to read, so that a pipeline stays one packet.
type stream struct {
	conn    net.Conn
	waiting []byte
	bytes   *atomic.Int64
}

// maxWaiting is how many bytes are buffered before they are sent in any case.
const maxWaiting = 64 << 10

func (s *stream) write(frame []byte) error {
	s.waiting = append(s.waiting, frame...)
	if len(s.waiting) < maxWaiting {
		return nil
	}
	return s.flush()
}

func (s *stream) flush() error {
	if len(s.waiting) == 0 {
		return nil
	}
	// Count first, so that received bytes have always been counted.
	s.bytes.Add(int64(len(s.waiting)))
	_, err := s.conn.Write(s.waiting)
	s.waiting = s.waiting[:0]
	return err
}

// closeWrite sends the buffered messages and the end of the stream.
func (s *stream) closeWrite() {
	// An error means that the other side is gone, which the other direction notices.
	_ = s.flush()
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// flushFirst is a reader that sends the buffered messages before it waits for more.
type flushFirst struct {
	from net.Conn
	to   *stream
}

func (f flushFirst) Read(p []byte) (int, error) {
	// Keep reading even if the receiver is gone: the sender must not block on its remaining data.
	_ = f.to.flush()
	return f.from.Read(p)
}

// downstream decides the fate of replies on one connection.
type downstream struct {
	c     *conn
	out   *stream
	lost  bool // a reply has been lost: nothing may follow it
	ended bool // the client has received the end of the stream

	cutting *mode // the mode that left counts for
	left    int64
}

// deliver applies the mode, or the rule of its request, to one message from the server.
func (d *downstream) deliver(m *mode, frame []byte) {
	var q question
	if d.c.p.raw || !isPush(frame) {
		q = d.c.answered()
	}
	if q.time {
		frame = shifted(frame, time.Duration(d.c.p.shift.Load()))
	}
	r := q.rule
	switch {
	case d.lost:
		d.c.p.counters.swallowed.Add(1)
	case r != nil:
		d.lose(frame, r.keep, r.close)
	case m.fate == swallow:
		d.lose(frame, 0, m.close)
	case m.fate == cut:
		d.cut(m, frame)
	default:
		d.send(frame)
	}
	if r != nil {
		d.c.p.lost(r)
	}
}

// send delivers a whole reply. If the client is gone, the server's replies are still read, so that
// the server isn't disturbed while it executes earlier requests.
func (d *downstream) send(frame []byte) {
	d.c.p.counters.replies.Add(1)
	d.lost = d.out.write(frame) != nil
}

// lose delivers only the first keep bytes of a reply. It ends only the direction to the client: the
// client may be in the middle of writing a pipeline, whose rest would be lost if both were closed.
func (d *downstream) lose(frame []byte, keep int64, end bool) {
	d.c.p.counters.swallowed.Add(1)
	d.lost, d.ended = true, end
	// It makes no difference if the client is gone.
	_ = d.out.write(frame[:min(keep, int64(len(frame)))])
	if end {
		d.out.closeWrite()
	}
}

// cut delivers as much of a reply as the mode still allows.
func (d *downstream) cut(m *mode, frame []byte) {
	if d.cutting != m {
		d.cutting, d.left = m, m.bytes
	}
	if d.left > int64(len(frame)) {
		d.left -= int64(len(frame))
		d.send(frame)
		return
	}
	d.lose(frame, d.left, true)
}

// ShiftTime makes the server's clock appear to be ahead by that much: from now on the proxy changes
// the replies to TIME, and nothing else. Commands that the server executes, also in scripts, still
// use its real clock. It has no effect on a raw proxy.
func (p *Proxy) ShiftTime(by time.Duration) { p.shift.Store(int64(by)) }

func asksTime(request []byte) bool {
	return bytes.EqualFold(request, []byte("*1\r\n$4\r\nTIME\r\n"))
}

// shifted returns a reply to TIME with the time moved by that much. It leaves any other reply, such
// as an error, unchanged.
func shifted(reply []byte, by time.Duration) []byte {
	var sec, usec int64
	var n, m int
	if _, err := fmt.Sscanf(string(reply), "*2\r\n$%d\r\n%d\r\n$%d\r\n%d\r\n", &n, &sec, &m,
		&usec); err != nil || by == 0 {
		return reply
	}
	t := time.Unix(sec, usec*int64(time.Microsecond)).Add(by)
	s, u := fmt.Sprint(t.Unix()), fmt.Sprint(t.Nanosecond()/1000)
	return fmt.Appendf(nil, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(s), s, len(u), u)
}
