package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/internal/account"
)

// conn is a connection that can be drained: it then ends as soon as no request is in progress on
// it, and does not wait long for a client that does not read its answer.
//
// Just closing idle connections would not do: a request that has just been read from one would be
// executed, and its answer lost. A read deadline in the past only stops requests that have not
// begun.
type conn struct {
	net.Conn
	raw      net.Conn  // beneath TLS
	endpoint *endpoint // the endpoint that accepted the connection
	memory   memory.Request
	header   longHeader

	mu     sync.Mutex
	served bool      // at least one request was answered
	busy   bool      // a request has begun to arrive and is not answered yet
	by     time.Time // when draining: no read waits longer than this; zero otherwise
	readBy time.Time // when draining: no write waits longer than this, unless it is zero
	stuck  bool      // an answer could not be written
	linger bool      // the client may still be sending: see Close
	park   park
}

// Read reads from the connection. Any data begins a request.
func (c *conn) Read(b []byte) (int, error) {
	if n := copy(b, c.header.again); n > 0 {
		c.header.again = c.header.again[n:]
		return n, nil
	}
	if c.park.unread && len(b) > 0 {
		b[0], c.park.unread = c.park.first[0], false
		c.header.begin(c.park.first[:])
		return 1, nil
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		c.parkIfIdle(err)
		return n, err
	}
	if c.markBusy() && !bytes.Contains(b[:n], []byte(endOfHeader)) {
		c.header.begin(nil)
	}
	if c.header.open {
		c.header.scanForEnd(b[:n], &c.memory)
	}
	return n, err
}

// markBusy marks the connection as busy, and reports whether it was not.
func (c *conn) markBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.busy
	c.busy = true
	return !was
}

// Write writes to the connection. It discards the answer to a header that is about to be read
// again.
func (c *conn) Write(b []byte) (int, error) {
	if c.header.moves {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stuck = true
	}
	return n, err
}

// SetReadDeadline sets the deadline, or an earlier one if the connection is being drained or is
// about to be parked.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.park.by = t; c.served && !c.busy {
		t = c.parkingTimeLocked(time.Now())
	}
	return c.setReadDeadlineLocked(t)
}

func (c *conn) setReadDeadlineLocked(t time.Time) error {
	switch {
	case c.by.IsZero():
	case !c.busy:
		t = account.PastDeadline()
	case t.IsZero() || t.After(c.by):
		t = c.by
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline, or an earlier one if the connection is being drained.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.readBy.IsZero() && t.After(c.readBy) {
		t = c.readBy
	}
	return c.Conn.SetWriteDeadline(t)
}

// drain ends the connection when the request in progress is answered, or at once if there is none.
// A request has until by to arrive, and an answer until readBy to be read, unless that is zero.
func (c *conn) drain(by, readBy time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by, c.readBy = by, readBy
	_ = c.setReadDeadlineLocked(by)
	if !readBy.IsZero() {
		_ = c.Conn.SetWriteDeadline(readBy)
	}
}

// Close closes the connection. If the last answer did not wait for the whole request, it first
// reads the rest of the request, for a second at most: closing a socket with unread data resets the
// connection, and the answer could be lost. If an answer could not be written, there is nothing to
// wait for, and TLS must not say goodbye: that would wait for the client, too. A connection that is
// parked, or about to be served anew, stays open.
func (c *conn) Close() error {
	c.mu.Lock()
	linger, parked, stuck := c.linger, c.park.parked, c.stuck
	c.mu.Unlock()
	switch {
	case parked || c.header.moves:
		return nil
	case stuck:
		return c.raw.Close()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && linger &&
		half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(drainGrace))
		_, _ = io.CopyN(io.Discard, c.Conn, 32*maxBatchBody)
	}
	return c.Conn.Close()
}

// connState tracks whether a request is in progress. fasthttp calls a first request active before
// any of it has arrived, so only Read knows; a later one may already be in fasthttp's buffer.
func connState(nc net.Conn, state fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	if state == fasthttp.StateIdle { // the answer is written
		c.memory.Release()
		if c.header.open {
			c.header.end()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case fasthttp.StateIdle:
		c.served, c.busy = true, false
	case fasthttp.StateActive:
		c.busy = c.busy || c.served
	}
}

// park lets a connection give up its buffers between requests. fasthttp keeps the buffer for
// reading requests for as long as it serves a connection. So a connection that has been idle for a
// moment is no longer served by fasthttp, but stays open: its goroutine waits for the first byte of
// the next request, and then the connection is served again.
type park struct {
	by     time.Time // by when the next request must begin
	parked bool
	// first is the byte that ended the wait. unread is set until Read has returned it. Both belong
	// to the goroutine that serves the connection.
	first  [1]byte
	unread bool
}

const (
	// parkAfter is how long a connection is idle before it is parked. parkSoon applies while more
	// than half of the memory for connections that are not parked is in use.
	parkAfter = 100 * time.Millisecond
	parkSoon  = time.Millisecond
)

// parkingTimeLocked returns when to park a connection that has just become idle.
func (c *conn) parkingTimeLocked(now time.Time) time.Time {
	pause := parkAfter
	if c.header.long {
		return account.PastDeadline()
	}
	if c.memory.IsCrowded() {
		pause = parkSoon
	}
	if at := now.Add(pause); c.park.by.IsZero() || at.Before(c.park.by) {
		return at
	}
	return c.park.by
}

// parkIfIdle parks a connection whose read has just failed, if the parking deadline was the reason.
func (c *conn) parkIfIdle(err error) {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parkLocked(time.Now())
}

// parkLocked parks a connection whose read has just timed out, if the parking deadline was the
// reason.
func (c *conn) parkLocked(now time.Time) {
	c.park.parked = c.served && !c.busy && c.by.IsZero() &&
		(c.park.by.IsZero() || now.Before(c.park.by))
}

// awaitRequest waits for the first byte of a request. The error is the reason why none will come.
func (c *conn) awaitRequest() error {
	c.mu.Lock()
	_ = c.setReadDeadlineLocked(c.park.by)
	c.mu.Unlock()
	n, err := c.Conn.Read(c.park.first[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.park.parked, c.park.unread, c.busy = false, n > 0, n > 0
	if n > 0 {
		return nil
	}
	return err
}

// isParked reports whether the connection is open although it is not being served.
func (c *conn) isParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.park.parked
}

// isSilent reports whether the connection has never received anything and is not being drained.
func (c *conn) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.served && c.by.IsZero()
}

// endpointOf returns the endpoint that received a request.
func (s *Server) endpointOf(ctx *fasthttp.RequestCtx) *endpoint {
	if c, ok := ctx.Conn().(*conn); ok && c.endpoint != nil {
		return c.endpoint
	}
	return s.endpoints[0]
}

// memoryOf returns the memory of the connection that a request came on.
func memoryOf(ctx *fasthttp.RequestCtx) *memory.Request {
	if c, ok := ctx.Conn().(*conn); ok {
		return &c.memory
	}
	return nil
}
