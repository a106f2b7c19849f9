package tap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"twotier.dev/twotier/internal/listener"
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
	opt      Options
	listener *listener.Listener[*conn]
	calls    listener.Account // that wait for their replies, in bytes

	mu      sync.Mutex
	scripts map[string]*Mapping // by SHA
	others  map[string]struct{} // scripts that passed and are no limiters, by SHA
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
	t := &Tap{opt: opt, calls: listener.Account{Most: maxCalls, Each: maxCallsEach},
		scripts: map[string]*Mapping{}, others: map[string]struct{}{}}
	for i := range opt.Mappings {
		if m := &opt.Mappings[i]; m.sha != "" && t.scripts[m.sha] == nil {
			t.scripts[m.sha] = m
		}
	}
	return t, nil
}

// Open starts to accept connections of the application, until Close.
func (t *Tap) Open(l net.Listener) error {
	t.listener = listener.New(listener.Options[*conn]{
		Sockets: []*listener.Socket{{Listener: l}},
		Make:    func(a *listener.Admitted) *conn { return &conn{Admitted: a} },
		Serve:   t.runConn, Logger: t.opt.Logger, Kind: "connections of the application"})
	return t.listener.Open(context.Background())
}

// Close closes the listener and all connections, and waits for their end.
func (t *Tap) Close() error { return t.listener.Close(context.Background()) }

// conn is a connection of the application, and the one to the old Redis that it is passed on to.
type conn struct {
	*listener.Admitted

	mu    sync.Mutex
	cut   bool
	redis net.Conn // nil before there is one
}

// Drain closes both connections: nobody knows when a connection is idle.
func (c *conn) Drain(time.Time) { c.Cut() }

// Cut closes both connections.
func (c *conn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.Admitted.Cut()
	if c.redis != nil {
		_ = c.redis.Close() // it is given up in any case
	}
}

// passTo sets the connection to the old Redis, which the conn closes from now on.
func (c *conn) passTo(redis net.Conn) {
	c.mu.Lock()
	cut := c.cut
	c.redis = redis
	c.mu.Unlock()
	if cut {
		c.Cut()
	}
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
func (t *Tap) runConn(c *conn) {
	defer c.End()
	defer c.Cut()
	redis, err := t.dial()
	if err != nil {
		t.opt.Logger.Warn("the old Redis can't be reached", "error", err)
		return
	}
	c.passTo(redis)
	r := newReading(t)
	var done sync.WaitGroup
	done.Go(func() { r.runForward(redis, c.Conn, &r.requests) })
	done.Go(func() { r.runForward(c.Conn, redis, &r.replies) })
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

// value is a value of RESP2 or RESP3.
type value struct {
	kind  byte   // its first byte; 0 for null
	text  []byte // of a value without elements, nil if it is empty or longer than maxText
	elems []*value
	left  int // elements still to come
}

const (
	// maxText is the longest text that is kept, in bytes.
	maxText = 64 << 10
	// maxKept bounds the bytes of a value that are kept, with perValue for each element.
	maxKept  = 256 << 10
	perValue = 64
	maxDepth = 64
	maxLine  = 64 << 10
	// maxBulk is the longest string that Redis accepts, and maxElements the longest array.
	maxBulk     = 512 << 20
	maxElements = 1 << 30
)

var (
	errForm = errors.New("this is not RESP, or an inline command")
	errDeep = errors.New("values are nested too deeply, or lines too long")
)

// scanner finds the values in one direction of a connection, in pieces of any size.
type scanner struct {
	// emit is called with each value on the top level. A long one is not complete.
	emit func(v *value, long bool) error

	line []byte   // the beginning of a header
	bulk int      // bytes of a string to come, with its end
	leaf *value   // this string
	skip bool     // it is too long to be kept
	open []*value // aggregates with elements to come, outermost first
	kept int      // bytes kept of the value on the top level; more than maxKept: it is too long
}

// scan reads the next bytes. After an error the scanner must not be used.
func (s *scanner) scan(b []byte) error {
	for len(b) > 0 {
		if s.bulk > 0 {
			n := min(s.bulk, len(b))
			s.keep(b[:max(0, min(n, s.bulk-len("\r\n")))])
			b, s.bulk = b[n:], s.bulk-n
			if s.bulk == 0 {
				if err := s.finish(s.leaf); err != nil {
					return err
				}
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		}
		if len(s.line)+end > maxLine {
			return errDeep
		}
		s.line = append(s.line, b[:end]...)
		if b[end-1] == '\n' {
			line := s.line
			s.line = s.line[:0]
			if err := s.header(line); err != nil {
				return err
			}
		}
		b = b[end:]
	}
	return nil
}

// keep keeps a part of a text, unless it or its value is too long.
func (s *scanner) keep(part []byte) {
	if s.skip {
		return
	}
	if s.kept += len(part); s.kept <= maxKept {
		s.leaf.text = append(s.leaf.text, part...)
	}
}

// header reads the first line of a value.
func (s *scanner) header(line []byte) error {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return errForm
	}
	v := &value{kind: line[0]}
	text := line[1 : len(line)-2]
	s.leaf, s.skip = v, false
	switch v.kind {
	case '+', '-', ':', '#', ',', '(':
		s.keep(text)
		return s.finish(v)
	case '_':
		v.kind = 0
		return s.finish(v)
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < -1 {
		return fmt.Errorf("%w: %.20q", errForm, line)
	}
	switch {
	case bytes.IndexByte([]byte("$=!*~>%|"), v.kind) < 0 || n > maxElements:
		return fmt.Errorf("%w: %.20q", errForm, line)
	case n == -1:
		v.kind = 0
		return s.finish(v)
	case v.kind == '$' || v.kind == '=' || v.kind == '!':
		if n > maxBulk {
			return errForm
		}
		s.bulk, s.skip = n+len("\r\n"), n > maxText
		return nil
	case v.kind == '%' || v.kind == '|':
		n *= 2
	}
	if n == 0 {
		return s.finish(v)
	}
	if len(s.open) == maxDepth {
		return errDeep
	}
	v.left = n
	s.open = append(s.open, v)
	return nil
}

// finish adds a complete value to the aggregate that contains it, or emits it.
func (s *scanner) finish(v *value) error {
	for {
		isAttribute := v.kind == '|' // it precedes the value that it describes
		if len(s.open) == 0 {
			long := s.kept > maxKept
			s.kept = 0
			if isAttribute {
				return nil
			}
			return s.emit(v, long)
		}
		if isAttribute {
			return nil
		}
		in := s.open[len(s.open)-1]
		if s.kept += perValue; s.kept <= maxKept {
			in.elems = append(in.elems, v)
		}
		if in.left--; in.left > 0 {
			return nil
		}
		s.open = s.open[:len(s.open)-1]
		v = in
	}
}
