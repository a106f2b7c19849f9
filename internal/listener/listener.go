package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOpened is returned by Open if the listener has been opened or closed before.
var ErrOpened = errors.New("server was opened or closed before")

// Error names the socket that can't be listened on.
type Error struct {
	// Flag and Address identify the socket.
	Flag, Address string
	Err           error
}

// Error names the address.
func (e *Error) Error() string { return fmt.Sprintf("listen on %s: %v", e.Address, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Socket is an address to listen on.
type Socket struct {
	// Flag names the socket in errors.
	Flag string
	// Address is a TCP address; port 0 picks a free one.
	Address string
	// Conns bounds the connections. Default: nothing does.
	Conns *Conns
	// Listener, if it is set before Open, was made elsewhere and takes the place of Address.
	Listener net.Listener
}

// Options configure a [Listener] of connections of type C.
type Options[C Conn] struct {
	// Sockets are opened in this order, all or none.
	Sockets []*Socket
	// TLS is used for all connections. Default: none.
	TLS *tls.Config
	// Make makes a connection, from which nothing has been read. Required.
	Make func(a *Admitted) C
	// Serve serves a connection in its own goroutine, and ends it.
	Serve func(c C)
	// Run takes the place of Serve: it accepts and serves connections until Stop ends it, which has
	// until ctx ends to drain them.
	Run  func(ln net.Listener) error
	Stop func(ctx context.Context) error
	// Reject returns an answer to a connection that is turned away. With TLS the answer is not
	// sent, as it would take a handshake. Default: none.
	Reject func(why string) []byte
	// Logger logs that connections, of this Kind, can't be accepted. Required.
	Logger *slog.Logger
	Kind   string
}

// Listener accepts the connections of a server, and knows the open ones.
type Listener[C Conn] struct {
	opt       Options[C]
	rejected  atomic.Int64
	closing   atomic.Bool
	serving   sync.WaitGroup // connections and acceptors
	closeOnce sync.Once
	closeErr  error

	mu     sync.Mutex // also guards the listeners of the sockets
	opened bool
	live   map[C]struct{}
}

// New returns a listener that is not open yet.
func New[C Conn](opt Options[C]) *Listener[C] {
	return &Listener[C]{opt: opt, live: map[C]struct{}{}}
}

// Open listens and starts serving. ctx only bounds the listening itself.
func (l *Listener[C]) Open(ctx context.Context) error { return l.OpenOn(ctx, nil) }

// OpenOn is Open with a listener made elsewhere in place of the first address, unless it is nil.
// Close closes it.
func (l *Listener[C]) OpenOn(ctx context.Context, first net.Listener) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened || l.closing.Load() {
		return ErrOpened
	}
	if first != nil {
		l.opt.Sockets[0].Listener = first
	}
	for _, s := range l.opt.Sockets {
		if s.Listener != nil {
			continue
		}
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
		if err != nil {
			err = errors.Join(&Error{s.Flag, s.Address, err}, l.closeSocketsLocked())
			for _, s := range l.opt.Sockets {
				s.Listener = nil
			}
			return err
		}
		s.Listener = ln
	}
	l.opened = true
	for _, s := range l.opt.Sockets {
		a := &acceptor[C]{s.Listener, s, l}
		l.serving.Go(a.run)
	}
	return nil
}

// closeSocketsLocked closes the sockets that are open.
func (l *Listener[C]) closeSocketsLocked() (err error) {
	for _, s := range l.opt.Sockets {
		if s.Listener == nil {
			continue
		}
		if e := s.Listener.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Addr returns the address of the first socket, or nil before Open.
func (l *Listener[C]) Addr() net.Addr { return l.AddrOf(l.opt.Sockets[0]) }

// AddrOf returns the address of a socket, or nil before Open.
func (l *Listener[C]) AddrOf(s *Socket) net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Listener == nil {
		return nil
	}
	return s.Listener.Addr()
}

// Rejected returns how many connections were turned away because there were too many.
func (l *Listener[C]) Rejected() int64 { return l.rejected.Load() }

// IsClosing reports whether Close was called.
func (l *Listener[C]) IsClosing() bool { return l.closing.Load() }

// Live returns the connections that have not ended.
func (l *Listener[C]) Live() []C {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.live))
}

// Go serves a part of a connection in a goroutine, which Close waits for. The connection has not
// ended yet.
func (l *Listener[C]) Go(serve func()) { l.serving.Go(serve) }

// admit makes a connection of nc, unless there are too many or the listener closes.
func (l *Listener[C]) admit(nc net.Conn, s *Socket) (c C, ok bool) {
	a := &Admitted{Conn: nc, Raw: nc, Socket: s}
	if s.Conns != nil {
		var tooMany string
		if a.Client, tooMany = s.Conns.Enter(nc.RemoteAddr()); a.Client == nil {
			l.reject(nc, tooMany)
			return c, false
		}
	}
	if l.opt.TLS != nil {
		a.Conn = tls.Server(nc, l.opt.TLS)
	}
	c = l.opt.Make(a)
	a.end = sync.OnceFunc(func() {
		if a.Client != nil {
			s.Conns.Leave(a.Client)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.live, c)
	})
	l.mu.Lock()
	closing := l.closing.Load()
	if !closing {
		l.live[c] = struct{}{}
	}
	l.mu.Unlock()
	if closing {
		nc.Close()
		a.end()
	}
	return c, !closing
}

// reject turns a connection away before reading from it. The answer fits in the empty buffer of a
// new socket, so the write does not block.
func (l *Listener[C]) reject(nc net.Conn, why string) {
	l.rejected.Add(1)
	if l.opt.Reject != nil {
		if answer := l.opt.Reject(why); l.opt.TLS == nil {
			_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write(answer)
		}
	}
	nc.Close()
}

// Close stops accepting and drains the connections: clients have half of the time until ctx ends to
// read their answers. It returns once no goroutine of the listener runs any more. If ctx ends
// first, connections are cut and ctx's error is part of the result, but Close still waits for what
// they execute. Close may be called again and returns the same error.
func (l *Listener[C]) Close(ctx context.Context) error {
	l.closeOnce.Do(func() { l.closeErr = l.shutDown(ctx) })
	return l.closeErr
}

func (l *Listener[C]) shutDown(ctx context.Context) (err error) {
	l.mu.Lock()
	l.closing.Store(true)
	l.mu.Unlock()
	if l.opt.Stop != nil {
		err = l.opt.Stop(ctx)
		ctx = context.WithoutCancel(ctx) // nothing is left to be cut
	}
	l.mu.Lock()
	err = errors.Join(err, l.closeSocketsLocked())
	var readBy time.Time
	if end, ok := ctx.Deadline(); ok {
		readBy = time.Now().Add(time.Until(end) / 2)
	}
	for c := range l.live {
		c.Drain(readBy)
	}
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	for _, c := range l.Live() {
		c.Cut()
	}
	<-done
	return errors.Join(err, ctx.Err())
}

// Conn is a connection of a server. Its type embeds [Admitted].
type Conn interface {
	comparable
	net.Conn
	// Drain ends the connection once the requests that have begun are answered. The client has
	// until readBy to read the answers; a zero readBy sets no limit.
	Drain(readBy time.Time)
	// Cut closes the connection, whatever it is doing.
	Cut()
}

// Admitted is an accepted connection within the bounds of its socket.
type Admitted struct {
	net.Conn          // with TLS, if there is any
	Raw      net.Conn // beneath TLS
	// Socket has accepted the connection.
	Socket *Socket
	// Client is the address of the other end, nil without [Socket].Conns.
	Client *Client

	end func()

	mu       sync.Mutex
	draining bool      // no read waits
	readBy   time.Time // no write waits longer than this, unless it is zero
}

// SetReadDeadline sets the deadline. Once Drain has been called, reads end at once.
func (a *Admitted) SetReadDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		t = PastDeadline()
	}
	return a.Conn.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline, or an earlier one if the connection is being drained.
func (a *Admitted) SetWriteDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.readBy.IsZero() && t.After(a.readBy) {
		t = a.readBy
	}
	return a.Conn.SetWriteDeadline(t)
}

// Drain implements [Conn]: reads fail from now on, and the protocol answers what has arrived.
func (a *Admitted) Drain(readBy time.Time) {
	a.mu.Lock()
	a.draining = true
	_ = a.Conn.SetReadDeadline(PastDeadline())
	a.mu.Unlock()
	a.LimitWrites(readBy)
}

// LimitWrites is the part of Drain about writes.
func (a *Admitted) LimitWrites(readBy time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readBy = readBy
	if !readBy.IsZero() {
		_ = a.Conn.SetWriteDeadline(readBy)
	}
}

// Cut implements [Conn].
func (a *Admitted) Cut() { a.Conn.Close() }

// End makes room for another connection, once this one is closed and holds no memory.
func (a *Admitted) End() { a.end() }

// Close closes the connection and ends it.
func (a *Admitted) Close() error {
	err := a.Conn.Close()
	a.end()
	return err
}

// PastDeadline returns a deadline that has passed: it ends a read at once.
func PastDeadline() time.Time { return time.Unix(1, 0) }

// acceptor is an open socket whose connections are of type C. It implements [net.Listener].
type acceptor[C Conn] struct {
	net.Listener
	socket *Socket
	to     *Listener[C]
}

// run serves connections until the socket is closed.
func (a *acceptor[C]) run() {
	if a.to.opt.Run != nil {
		if err := a.to.opt.Run(a); err != nil && !a.to.closing.Load() {
			a.to.opt.Logger.Error("can't accept "+a.to.opt.Kind+" any more", "err", err)
		}
		return
	}
	for {
		c, err := a.next()
		if err != nil {
			return
		}
		a.to.serving.Go(func() { a.to.opt.Serve(c) })
	}
}

// Accept implements [net.Listener].
func (a *acceptor[C]) Accept() (net.Conn, error) { return a.next() }

// next returns the next admitted connection. While connections can't be accepted, most likely for
// lack of file descriptors, it logs that once and tries again.
func (a *acceptor[C]) next() (c C, err error) {
	wait := time.Duration(0)
	for {
		nc, err := a.Listener.Accept()
		switch {
		case err == nil:
			if c, ok := a.to.admit(nc, a.socket); ok {
				return c, nil
			}
		case a.to.closing.Load(), errors.Is(err, net.ErrClosed):
			return c, err
		default:
			if wait == 0 {
				a.to.opt.Logger.Error("can't accept "+a.to.opt.Kind, "err", err)
			}
			wait = min(wait+5*time.Millisecond, time.Second)
			time.Sleep(wait)
			continue
		}
		wait = 0
	}
}
