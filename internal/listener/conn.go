package listener

import (
	"errors"
	"net"
	"sync"
	"time"
)

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
