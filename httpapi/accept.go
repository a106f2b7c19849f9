package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/account"
)

// runAccept serves each connection in its own goroutine until the listener is closed. It replaces
// fasthttp's loop, whose pool of workers outlives Shutdown by up to ten seconds.
func (s *Server) runAccept(ln net.Listener, d *endpoint) {
	account.AcceptConns(ln, &s.closing, func(err error) {
		s.log.Error("can't accept connections", "err", err)
	}, func(nc net.Conn) { s.accept(nc, d) })
}

// accept serves nc, or turns it away if there are too many connections.
func (s *Server) accept(nc net.Conn, d *endpoint) {
	from, tooMany := d.budget.Conns.Enter(nc.RemoteAddr())
	if from == nil {
		s.rejectConn(nc, tooMany)
		return
	}
	c := &conn{Conn: s.wrapTLS(nc), raw: nc, endpoint: d,
		memory: memory.NewRequest(d.budget, from, s.opts.RequestTimeout/2)}
	s.mu.Lock()
	closing := s.closing.Load()
	if !closing {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if closing {
		d.budget.Conns.Leave(from)
		nc.Close()
		return
	}
	c.park.by = time.Now().Add(s.opts.ReadTimeout)
	s.serving.Go(func() { s.runAwaitRequest(c) })
}

// runAwaitRequest waits for the first byte of a request in a goroutine whose stack has not grown,
// then starts another goroutine that serves the connection.
func (s *Server) runAwaitRequest(c *conn) {
	switch err := c.awaitRequest(); {
	case err == nil:
		s.serving.Go(func() { s.runConn(c) })
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
		s.serving.Go(func() { s.runAwaitRequest(c) })
		return
	}
	s.endConn(c)
}

// endConn ends a connection.
func (s *Server) endConn(c *conn) {
	c.Conn.Close()
	c.endpoint.budget.Conns.Leave(c.memory.Client())
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// rejectConn answers 429 on a connection from which nothing was read.
func (s *Server) rejectConn(nc net.Conn, why string) {
	s.turnedAway.Add(1)
	p := &wire.Problem{Kind: wire.Overload, Detail: why}
	if s.opts.TLS != nil { // an answer would take a handshake
		s.codes[p.Kind.Status].Add(1)
	} else {
		s.refuseRequest(nc, p)
	}
	nc.Close()
}

// refuseRequest answers a request without serving it. The answer fits in the empty buffer of a new
// socket, so the write does not block.
func (s *Server) refuseRequest(nc net.Conn, p *wire.Problem) {
	body := p.AppendJSON(nil)
	s.countLimitProblem(p)
	s.codes[p.Kind.Status].Add(1)
	_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\n", p.Kind.Status,
		fasthttp.StatusMessage(p.Kind.Status))
	if seconds := p.RetryAfter(); seconds > 0 {
		head += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
	}
	_, _ = io.WriteString(nc, head+"Content-Type: application/problem+json\r\nContent-Length: "+
		strconv.Itoa(len(body))+"\r\n\r\n"+string(body))
}
