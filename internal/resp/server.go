package resp

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/metrics"
)

// Server serves one node to Redis clients. At its end the commands already read are executed and
// answered. Its methods may be called from several goroutines.
type Server struct {
	*listener.Listener[*conn]
	metrics.Unchecked

	opts     Options
	access   ask.Access
	commands [commandCount]description
	names    map[string]command // of commands, in capital letters
	open     [commandCount]bool // commands that need no authentication
	began    time.Time

	conns    *listener.Conns
	works    workPool
	buffers  sync.Pool // of *[largeInput]byte
	counters counters
	lastID   atomic.Int64
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, commands: descriptions(), began: time.Now(),
		access: ask.NewAccess(o.Tokens, o.AdminToken)}
	s.names = byName(&s.commands)
	for i := range s.commands {
		s.open[i] = strings.Contains(s.commands[i].flags, "no_auth")
	}
	sixteenth := o.MaxMemory / 16
	s.conns = listener.NewConns(o.MaxConns, o.MaxConnsPerAddress, []*listener.Account{
		smallWorks: o.Account(3*sixteenth, workBytes(smallInput)),
		largeWorks: o.Account(2*sixteenth, largeWork),
		queues:     o.Account(sixteenth, maxQueue),
		answers:    o.Account(2*sixteenth, 1<<20),
	}...)
	s.buffers.New = func() any { return new([largeInput]byte) }
	s.counters.errors = make([]atomic.Int64, len(errorCodes()))
	s.Listener = listener.New(listener.Options[*conn]{
		Sockets: []*listener.Socket{{Flag: "resp", Address: o.Listen, Conns: s.conns}}, TLS: o.TLS,
		Make: s.newConn, Serve: s.runConn, Reject: rejection, Logger: o.Logger,
		Kind: "connections of Redis clients"})
	return s, nil
}

// newConn returns the state of a connection.
func (s *Server) newConn(a *listener.Admitted) *conn {
	now := time.Now()
	c := &conn{Admitted: a, server: s, began: now, now: now,
		session: session{id: s.lastID.Add(1), proto: resp2}}
	c.in.buf = make([]byte, smallInput)
	return c
}

// rejection answers a connection that is turned away.
func rejection(why string) []byte {
	return appendError(nil, errorf(codeErr, "max number of clients reached: %s", why))
}

// runConn serves a connection until it ends. The end of a connection affects no other: the client
// left, or sent input that is not RESP.
func (s *Server) runConn(c *conn) {
	defer s.endConn(c)
	c.serve()
}

// endConn ends a connection. A panic ends only its own connection.
func (s *Server) endConn(c *conn) {
	if v := recover(); v != nil {
		s.opts.Logger.Error("panic in a command", "panic", fmt.Sprint(v), "stack",
			string(debug.Stack()))
	}
	if errors.Is(c.failed, errWrite) {
		c.Raw.Close() // TLS would wait for the client to read its farewell
	}
	c.Conn.Close()
	c.releaseAll()
}
