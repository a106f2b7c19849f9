package httpapi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/listener"
)

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
	s.countLimitProblem(p)
	s.codes[p.Kind.Status].Add(1)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nConnection: close\r\n", p.Kind.Status,
		fasthttp.StatusMessage(p.Kind.Status))
	if seconds := p.RetryAfter(); seconds > 0 {
		head += "Retry-After: " + strconv.Itoa(seconds) + "\r\n"
	}
	return fmt.Appendf(nil, "%sContent-Type: application/problem+json\r\n"+
		"Content-Length: %d\r\n\r\n%s", head, len(body), body)
}
