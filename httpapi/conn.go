package httpapi

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// conn is a connection that can be drained: told from outside to end as soon as no request is in
// progress on it.
//
// Just closing idle connections would not do: a request that has just been read from one would be
// executed, and its answer lost. A read deadline in the past only stops requests that have not
// begun.
type conn struct {
	net.Conn
	endpoint *endpoint // the endpoint that accepted the connection
	memory   requestMemory

	mu     sync.Mutex
	served bool      // at least one request was answered
	busy   bool      // a request has begun to arrive and is not answered yet
	by     time.Time // when draining: no read waits longer than this; zero otherwise
	linger bool      // the client may still be sending: see Close
	park   park
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// Read reads from the connection. Any data begins a request.
func (c *conn) Read(b []byte) (int, error) {
	if c.park.unread && len(b) > 0 {
		b[0], c.park.unread = c.park.first[0], false
		return 1, nil
	}
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.busy = true
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.parkLocked(time.Now())
	}
	return n, err
}

// SetReadDeadline sets the deadline, or an earlier one if the connection is being drained or is
// about to be parked.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.park.by = t; c.served && !c.busy {
		t = c.parkingLocked(time.Now())
	}
	return c.setReadDeadlineLocked(t)
}

func (c *conn) setReadDeadlineLocked(t time.Time) error {
	switch {
	case c.by.IsZero():
	case !c.busy:
		t = longAgo
	case t.IsZero() || t.After(c.by):
		t = c.by
	}
	return c.Conn.SetReadDeadline(t)
}

// drain ends the connection when the request in progress is answered, or at once if there is none.
func (c *conn) drain(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by = by
	_ = c.setReadDeadlineLocked(by)
}

// Close closes the connection. If the last answer did not wait for the whole request, it first
// reads what the client is still sending, for a second at most: closing a socket with unread data
// resets the connection, and the answer could be lost. A parked connection stays open.
func (c *conn) Close() error {
	c.mu.Lock()
	linger, parked := c.linger, c.park.parked
	c.mu.Unlock()
	if parked {
		return nil
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && linger &&
		half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(drainGrace))
		_, _ = io.CopyN(io.Discard, c.Conn, 32*maxBatchBody)
	}
	return c.Conn.Close()
}

// connState tracks whether a request is in progress. fasthttp calls a first request active before
// any of it has arrived, so only Read can tell; a later one may already be in fasthttp's buffer.
func connState(nc net.Conn, state fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	if state == fasthttp.StateIdle { // the answer is written
		c.memory.release()
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
