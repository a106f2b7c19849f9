package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/listener"
)

// conn is a connection that can be drained: it then ends as soon as no request is in progress on
// it, and does not wait long for a client that does not read its answer.
//
// Just closing idle connections would not do: a request that has just been read from one would be
// executed, and its answer lost. A read deadline in the past only stops requests that have not
// begun.
type conn struct {
	*listener.Admitted
	endpoint *endpoint // the endpoint that accepted the connection
	memory   memory.Request
	header   longHeader

	mu    sync.Mutex
	stage stage
	end   end
	by    time.Time // when draining: no read waits longer than this; zero otherwise
	park  park
}

// stage is where a connection stands: fresh, first, then idle and busy in turn, and parked between
// idle and busy.
type stage uint8

const (
	// fresh: nothing has arrived.
	fresh stage = iota
	// first: the first request has begun to arrive, and is not answered yet.
	first
	// idle: a request was answered, and the next has not begun.
	idle
	// busy: a later request has begun to arrive, and is not answered yet.
	busy
	// parked: idle, and not served by fasthttp, see park.
	parked
)

// hasRequest reports whether a request is in progress.
func (s stage) hasRequest() bool { return s == first || s == busy }

// begun returns the stage once a request begins to arrive.
func (s stage) begun() stage {
	switch s {
	case fresh:
		return first
	case idle, parked:
		return busy
	}
	return s
}

// end is how a connection is closed.
type end uint8

const (
	_ end = iota // plain: the client has sent all of its request, and takes the answer
	// lingering: the client may still be sending the request that was answered.
	lingering
	// stuck: an answer could not be written.
	stuck
)

// Read reads from the connection. Any data begins a request.
func (c *conn) Read(b []byte) (int, error) {
	if n := copy(b, c.header.again); n > 0 {
		c.header.again = c.header.again[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		c.parkIfIdle(err)
		return n, err
	}
	if c.markBusy() && !bytes.Contains(b[:n], []byte(endOfHeader)) {
		c.header.begin(nil)
	}
	if c.header.state == headerOpen {
		c.header.scanForEnd(b[:n], &c.memory)
	}
	return n, err
}

// markBusy marks the connection as busy, and reports whether it was not.
func (c *conn) markBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.stage
	c.stage = was.begun()
	return c.stage != was
}

// Write writes to the connection. It discards the answer to a header that is about to be read
// again.
func (c *conn) Write(b []byte) (int, error) {
	if c.header.state == headerMoves {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end = stuck
	}
	return n, err
}

// SetReadDeadline sets the deadline, or an earlier one if the connection is being drained or is
// about to be parked.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.park.by = t; c.stage == idle {
		t = c.parkingTimeLocked(time.Now())
	}
	return c.setReadDeadlineLocked(t)
}

func (c *conn) setReadDeadlineLocked(t time.Time) error {
	switch {
	case c.by.IsZero():
	case !c.stage.hasRequest():
		t = listener.PastDeadline()
	case t.IsZero() || t.After(c.by):
		t = c.by
	}
	return c.Conn.SetReadDeadline(t)
}

// drainGrace is how long a request that has begun to arrive may take when the server closes.
const drainGrace = time.Second

// Drain ends the connection when the request in progress is answered, or at once if there is none.
// A request has drainGrace to arrive.
func (c *conn) Drain(readBy time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by = time.Now().Add(drainGrace)
	_ = c.setReadDeadlineLocked(c.by)
	c.LimitWrites(readBy)
}

// Close closes the connection. If the last answer did not wait for the whole request, it first
// reads the rest of the request, for a second at most: closing a socket with unread data resets the
// connection, and the answer could be lost. If an answer could not be written, there is nothing to
// wait for, and TLS must not say goodbye: that would wait for the client, too.
func (c *conn) Close() error {
	c.mu.Lock()
	how := c.end
	c.mu.Unlock()
	if how == stuck {
		return c.Raw.Close()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && how == lingering &&
		half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(drainGrace))
		_, _ = io.CopyN(io.Discard, c.Conn, 32*maxBatchBody)
	}
	return c.Conn.Close()
}

// served is a connection while fasthttp serves it. fasthttp closes what it no longer serves.
type served struct{ *conn }

// Close closes the connection, unless it is parked or about to be served anew.
func (s served) Close() error {
	if s.header.state == headerMoves || s.isParked() {
		return nil
	}
	return s.conn.Close()
}

// connState tracks whether a request is in progress. fasthttp calls a first request active before
// any of it has arrived, so only Read knows; a later one may already be in fasthttp's buffer.
func connState(nc net.Conn, state fasthttp.ConnState) {
	c := nc.(served).conn
	if state == fasthttp.StateIdle { // the answer is written
		c.memory.Release()
		if c.header.state == headerOpen {
			c.header.end()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case fasthttp.StateIdle:
		c.stage = idle
	case fasthttp.StateActive:
		if c.stage != fresh {
			c.stage = c.stage.begun()
		}
	}
}

// park lets a connection give up its buffers between requests. fasthttp keeps the buffer for
// reading requests for as long as it serves a connection. So a connection that has been idle for a
// moment is no longer served by fasthttp, but stays open: its goroutine waits for the first byte of
// the next request, and then the connection is served again.
type park struct {
	by time.Time // by when the next request must begin
	// first is the byte that ended the wait. It belongs to the goroutine that serves the
	// connection.
	first [1]byte
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
		return listener.PastDeadline()
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
	if c.stage == idle && c.by.IsZero() && (c.park.by.IsZero() || time.Now().Before(c.park.by)) {
		c.stage = parked
	}
}

// awaitRequest waits for the first byte of a request. The error is the reason why none will come.
func (c *conn) awaitRequest() error {
	c.mu.Lock()
	_ = c.setReadDeadlineLocked(c.park.by)
	c.mu.Unlock()
	n, err := c.Conn.Read(c.park.first[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.stage = c.stage.begun()
		c.header.begin(c.park.first[:])
		c.header.again = c.park.first[:]
		return nil
	}
	if c.stage == parked {
		c.stage = idle
	}
	return err
}

// isParked reports whether the connection is open although it is not being served.
func (c *conn) isParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stage == parked
}

// isSilent reports whether the connection has never received anything and is not being drained.
func (c *conn) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stage == fresh && c.by.IsZero()
}

// connOf returns the connection that a request came on.
func connOf(ctx *fasthttp.RequestCtx) *conn { return ctx.Conn().(served).conn }

// memoryOf returns the memory of the connection that a request came on.
func memoryOf(ctx *fasthttp.RequestCtx) *memory.Request { return &connOf(ctx).memory }

// newListener returns the listener of all endpoints. It replaces fasthttp's loop, whose pool of
// workers outlives Shutdown by up to ten seconds.
func (s *Server) newListener() *listener.Listener[*conn] {
	opt := listener.Options[*conn]{TLS: s.opts.TLS, Make: s.newConn, Serve: s.runAwaitRequest,
		Reject: func(why string) []byte {
			return s.refusal(&wire.Problem{Kind: wire.Overload, Detail: why})
		}, Logger: s.log, Kind: "connections"}
	for _, d := range s.endpoints {
		opt.Sockets = append(opt.Sockets, &d.Socket)
	}
	return listener.New(opt)
}

// newConn returns the state of a connection, whose first request is to come.
func (s *Server) newConn(a *listener.Admitted) *conn {
	at := slices.IndexFunc(s.endpoints, func(d *endpoint) bool { return &d.Socket == a.Socket })
	c := &conn{Admitted: a, endpoint: s.endpoints[at],
		memory: memory.NewRequest(s.endpoints[at].budget, a.Client, s.opts.RequestTimeout/2)}
	c.park.by = time.Now().Add(s.opts.ReadTimeout)
	return c
}

// runAwaitRequest waits for the first byte of a request in a goroutine whose stack has not grown,
// then starts another goroutine that serves the connection.
func (s *Server) runAwaitRequest(c *conn) {
	switch err := c.awaitRequest(); {
	case err == nil:
		s.Go(func() { s.runConn(c) })
		return
	case errors.Is(err, os.ErrDeadlineExceeded) && c.isSilent():
		s.refuseRequest(c.Conn, receive.ProblemOf(err))
	}
	s.endConn(c)
}

// runConn serves a connection until it ends or is parked.
func (s *Server) runConn(c *conn) {
	if !c.memory.ReserveServing() {
		s.refuseRequest(c.Conn, memory.BusyProblem())
		s.endConn(c)
		return
	}
	s.serve(c)
	c.memory.Release()
	c.memory.ReleaseServing()
	if c.isParked() {
		s.Go(func() { s.runAwaitRequest(c) })
		return
	}
	s.endConn(c)
}

// endConn ends a connection.
func (s *Server) endConn(c *conn) {
	c.Close()
	c.End()
}

// refuseRequest answers a request without serving it. The answer fits in the empty buffer of a new
// socket, so the write does not block.
func (s *Server) refuseRequest(nc net.Conn, p *wire.Problem) {
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = nc.Write(s.refusal(p))
}

// refusal returns the answer to a request that is not served, and counts it.
func (s *Server) refusal(p *wire.Problem) []byte {
	body := p.AppendJSON(nil)
	s.codes[p.Kind.Status].Add(1)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\n", p.Kind.Status,
		fasthttp.StatusMessage(p.Kind.Status))
	if seconds := p.RetryAfter(); seconds > 0 {
		head += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
	}
	return fmt.Appendf(nil, "%sContent-Type: application/problem+json\r\n"+
		"Content-Length: %d\r\n\r\n%s", head, len(body), body)
}
