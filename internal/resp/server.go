package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/ask"
)

// ErrOpened is returned by Open if the server has been opened or closed before.
var ErrOpened = errors.New("server was opened or closed before")

// Server serves one node to Redis clients. Its methods may be called from several goroutines.
type Server struct {
	opts     Options
	access   ask.Access
	verdicts ask.Verdicts
	commands [commandCount]description
	open     [commandCount]bool // commands that need no authentication
	began    time.Time

	conns                  *account.Conns
	smallWorks, largeWorks account.Account
	queues                 account.Account // of transactions
	answers                account.Account // that grow with the rules
	works                  workPool
	buffers                sync.Pool // of *[largeInput]byte
	counters               counters
	lastID                 atomic.Int64

	closing   atomic.Bool
	serving   sync.WaitGroup // connections and the acceptor
	closeOnce sync.Once
	closeErr  error

	mu       sync.Mutex
	listener net.Listener
	opened   bool
	live     map[*conn]struct{}
}

// New returns a server that is not listening yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, commands: descriptions(), began: time.Now(),
		access:   ask.NewAccess(o.Tokens, o.AdminToken),
		verdicts: ask.Verdicts{Counter: o.Verdicts, Recorder: o.Decisions, Refusals: o.Refusals},
		live:     map[*conn]struct{}{}}
	for i := range s.commands {
		s.open[i] = strings.Contains(s.commands[i].flags, "no_auth")
	}
	part := float64(o.MaxConnsPerAddress) / float64(o.MaxConns)
	share := func(sixteenths, least int64) account.Account {
		all := max(o.MaxMemory/16*sixteenths, 2*least)
		return account.Account{Most: all, Each: max(least, int64(float64(all)*part))}
	}
	s.smallWorks, s.largeWorks = share(3, workBytes(smallInput)), share(2, largeWork)
	s.queues, s.answers = share(1, maxQueue), share(2, 1<<20)
	s.conns = account.NewConns(o.MaxConns, o.MaxConnsPerAddress, &s.smallWorks, &s.largeWorks,
		&s.queues, &s.answers)
	s.buffers.New = func() any { return new([largeInput]byte) }
	s.counters.errors = make([]atomic.Int64, len(errorCodes()))
	return s, nil
}

// Open listens and starts serving. ctx only bounds the listening itself.
func (s *Server) Open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened || s.closing.Load() {
		return ErrOpened
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opts.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.opts.Listen, err)
	}
	s.listener, s.opened = ln, true
	s.serving.Go(s.runAccept)
	return nil
}

// Addr returns the address that the server listens on, or nil before Open.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// runAccept serves each connection in its own goroutine until the listener is closed.
func (s *Server) runAccept() {
	account.AcceptConns(s.listener, &s.closing, func(err error) {
		s.opts.Logger.Error("can't accept connections of Redis clients", "err", err)
	}, s.accept)
}

// accept serves nc, or turns it away if there are too many connections.
func (s *Server) accept(nc net.Conn) {
	from, tooMany := s.conns.Enter(nc.RemoteAddr())
	if from == nil {
		s.rejectConn(nc, tooMany)
		return
	}
	now := time.Now()
	c := &conn{Conn: s.wrapTLS(nc), raw: nc, server: s, from: from, began: now, now: now,
		session: session{id: s.lastID.Add(1), proto: resp2}}
	c.in.buf = make([]byte, smallInput)
	s.mu.Lock()
	closing := s.closing.Load()
	if !closing {
		s.live[c] = struct{}{}
		s.serving.Go(func() { s.runConn(c) })
	}
	s.mu.Unlock()
	if closing {
		s.conns.Leave(from)
		nc.Close()
	}
}

// wrapTLS adds TLS to a connection, if TLS is configured.
func (s *Server) wrapTLS(nc net.Conn) net.Conn {
	if s.opts.TLS == nil {
		return nc
	}
	return tls.Server(nc, s.opts.TLS)
}

// rejectConn answers with an error on a connection before reading from it. The answer fits in the
// empty buffer of a new socket, so the write does not block. With TLS it would need a handshake.
func (s *Server) rejectConn(nc net.Conn, why string) {
	s.counters.rejected.Add(1)
	if s.opts.TLS == nil {
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = nc.Write(appendError(nil, errorf(codeErr, "max number of clients reached: %s", why)))
	}
	nc.Close()
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
		c.raw.Close() // TLS would wait for the client to read its farewell
	}
	c.Conn.Close()
	c.releaseAll()
	s.mu.Lock()
	delete(s.live, c)
	s.mu.Unlock()
}

// Close stops accepting and executes and answers the commands already read. Clients have half of
// the time until ctx ends to read the answers. It returns once every goroutine of the server has
// ended. If ctx ends first, connections are cut and ctx's error is part of the result, but Close
// still waits for operations, at most RequestTimeout. Close may be called again and returns the
// same error.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shutDown(ctx) })
	return s.closeErr
}

func (s *Server) shutDown(ctx context.Context) (err error) {
	s.mu.Lock()
	s.closing.Store(true)
	if s.listener != nil {
		err = s.listener.Close()
	}
	readBy := account.ReadDeadline(ctx)
	for c := range s.live {
		c.drain(readBy)
	}
	s.mu.Unlock()
	return errors.Join(err, account.AwaitEnd(ctx, &s.serving, s.closeConns))
}

// closeConns closes every connection immediately.
func (s *Server) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		c.Conn.Close()
	}
}
