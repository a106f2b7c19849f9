package tap

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/mirror"
)

// Options configure a [Tap]. The zero value of a field means its default.
type Options struct {
	// Mirror compares the verdicts. Required.
	Mirror *mirror.Mirror
	// Mappings declare the verdicts. The first one that fits a call is used. Required.
	Mappings []Mapping
	// Network and Address lead to the old Redis, as for net.Dial. Network is tcp by default.
	Network, Address string
	// TLS makes connections to the old Redis use TLS. Default: none.
	TLS *tls.Config
	// Logger logs why a connection is not read. Default: none.
	Logger *slog.Logger
	// Now returns the time of verdicts whose mapping has none. Default: time.Now.
	Now func() time.Time
}

// Tap forwards connections to the old Redis, and reads verdicts from them. Make one with [New],
// start it with Open, stop it with Close.
type Tap struct {
	opt   Options
	done  sync.WaitGroup
	calls account.Account // that wait for their replies, in bytes

	mu       sync.Mutex
	scripts  map[string]*Mapping // by SHA
	others   map[string]struct{} // scripts that passed and are no limiters, by SHA
	conns    map[net.Conn]struct{}
	closed   bool
	listener net.Listener
}

// New checks the options. It makes no connections.
func New(opt Options) (*Tap, error) {
	if opt.Mirror == nil || len(opt.Mappings) == 0 || opt.Address == "" {
		return nil, errors.New("tap: want a Mirror, Mappings and an Address")
	}
	opt.Network = cmp.Or(opt.Network, "tcp")
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	t := &Tap{opt: opt, calls: account.Account{Most: maxCalls, Each: maxCallsEach},
		scripts: map[string]*Mapping{}, others: map[string]struct{}{},
		conns: map[net.Conn]struct{}{}}
	for i := range opt.Mappings {
		if m := &opt.Mappings[i]; m.sha != "" && t.scripts[m.sha] == nil {
			t.scripts[m.sha] = m
		}
	}
	return t, nil
}

// Open starts to accept connections of the application, until Close.
func (t *Tap) Open(l net.Listener) {
	t.listener = l
	t.done.Go(t.runListener)
}

// Close closes the listener and all connections, and waits for their end.
func (t *Tap) Close() error {
	err := t.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	t.mu.Lock()
	t.closed = true
	for c := range t.conns {
		_ = c.Close() // the connection is given up in any case
	}
	t.mu.Unlock()
	t.done.Wait()
	return err
}

// acceptPause is the time until the next attempt if a connection can't be accepted, for example
// because there are too many open files.
const acceptPause = 50 * time.Millisecond

// runListener accepts connections until the listener is closed.
func (t *Tap) runListener() {
	for {
		c, err := t.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			t.opt.Logger.Warn("can't accept a connection", "error", err)
			time.Sleep(acceptPause)
		default:
			t.done.Go(func() { t.runConn(c) })
		}
	}
}

// add registers a connection, so that Close closes it. It returns false if that has happened.
func (t *Tap) add(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.conns[c] = struct{}{}
	}
	return !t.closed
}

// remove closes a connection.
func (t *Tap) remove(c net.Conn) {
	_ = c.Close() // both directions have ended
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// dialTimeout bounds how long the application waits for a connection to the old Redis.
const dialTimeout = 5 * time.Second

// dial connects to the old Redis.
func (t *Tap) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	d := net.Dialer{}
	if t.opt.TLS != nil {
		return (&tls.Dialer{NetDialer: &d, Config: t.opt.TLS}).DialContext(ctx, t.opt.Network,
			t.opt.Address)
	}
	return d.DialContext(ctx, t.opt.Network, t.opt.Address)
}

// runConn forwards one connection in both directions until both have ended, or one has failed.
func (t *Tap) runConn(application net.Conn) {
	defer t.remove(application)
	if !t.add(application) {
		return
	}
	redis, err := t.dial()
	if err != nil {
		t.opt.Logger.Warn("the old Redis can't be reached", "error", err)
		return
	}
	defer t.remove(redis)
	if !t.add(redis) {
		return
	}
	r := newReading(t)
	var done sync.WaitGroup
	done.Go(func() { r.runForward(redis, application, &r.requests) })
	done.Go(func() { r.runForward(application, redis, &r.replies) })
	done.Wait()
	r.end()
}

// runForward forwards one direction: it passes its end on, and ends the other one too if it fails.
func (r *reading) runForward(to, from net.Conn, s *scanner) {
	const size = 32 << 10
	b := make([]byte, size)
	for {
		n, err := from.Read(b)
		if n > 0 {
			r.read(s, b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				break
			}
		}
		if err == nil {
			continue
		}
		half, ok := to.(interface{ CloseWrite() error })
		if ok && errors.Is(err, io.EOF) && half.CloseWrite() == nil {
			return
		}
		break
	}
	_, _ = to.Close(), from.Close() // one of them has failed
}
