package mirror

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/hostname"
)

// The bounds of the HTTP interface: the bytes of bodies that arrive at a time, how long a request
// waits for room among them, the longest header in bytes, and the number of connections.
const (
	maxBodies    = 16 << 20
	bodyPatience = time.Second
	maxHeader    = 16 << 10
	maxConns     = 1024
)

// errBusy is the error of a request that has waited too long.
var errBusy = errors.New("too many bodies arrive at a time; send fewer verdicts, or later")

// Server serves the HTTP interface of a mirror. Half of its connections and of the bytes of bodies
// are for one address.
type Server struct {
	http  http.Server
	conns *account.Conns
	l     net.Listener
}

// NewServer returns a server for a listener. It has at most a quarter of the process's file
// descriptors, so that connections to the old Redis always find some.
func (m *Mirror) NewServer(l net.Listener, descriptors uint64) *Server {
	conns := int(max(2, min(maxConns, descriptors/4)))
	s := &Server{l: l, conns: account.NewConns(conns, conns/2, &m.bodies)}
	hosts := hostname.NewCheck(nil, false, hostname.IsLoopback(l.Addr().String()))
	s.http = http.Server{Handler: m.Handler(hosts), ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second, MaxHeaderBytes: maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, c.(*conn).from)
		}}
	return s
}

// Serve serves connections until Shutdown or Close.
func (s *Server) Serve() error { return s.http.Serve(&listener{s.l, s.conns}) }

// Shutdown lets requests that have begun end, until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return s.http.Close() // connections of clients that don't finish their request
	}
	return err
}

// Close ends all connections.
func (s *Server) Close() error { return s.http.Close() }

// clientKey is the key of a connection's client in the context of its requests.
type clientKey struct{}

// bodiesOf returns the sender's share of the bytes of bodies.
func (m *Mirror) bodiesOf(r *http.Request) *account.Share {
	if c, ok := r.Context().Value(clientKey{}).(*account.Client); ok {
		return &c.Shares[0]
	}
	return m.bodies.NewShare()
}

// listener turns connections away if there are too many.
type listener struct {
	net.Listener

	conns *account.Conns
}

// conn is an accepted connection.
type conn struct {
	net.Conn

	from  *account.Client
	leave func()
}

// Accept returns the next connection within the bounds.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, tooMany := l.conns.Enter(c.RemoteAddr())
		if from != nil {
			return &conn{c, from, sync.OnceFunc(func() { l.conns.Leave(from) })}, nil
		}
		reject(c, tooMany)
	}
}

// reject answers 429 on a connection from which nothing was read. The answer fits in the empty
// buffer of a new socket, so the write does not block.
func reject(c net.Conn, why string) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n"+
		"Content-Type: text/plain\r\n\r\n"+why+"\n")
	_ = c.Close() // it was never used
}

// Close closes the connection, and makes room for another one.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
