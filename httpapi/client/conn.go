package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/idle"
)

// The headers of a session, as the server documents them.
const (
	headerSession  = "Twotier-Session"
	headerSequence = "Twotier-Sequence"
	headerProcess  = "Twotier-Process"
)

// headerTimeout is the number of milliseconds that the client waits for the answer.
const headerTimeout = "Twotier-Timeout"

const (
	maxAnswer   = 64 << 20
	bufferSize  = 16 << 10
	keepAlive   = 15 * time.Second
	maxIdleTime = 30 * time.Second // less than servers keep idle connections
)

// errDial: there was no connection, so nothing was sent.
var errDial = errors.New("no connection")

// errHandshake is an errDial of a server that accepts connections. A server with too many closes
// them before the handshake.
var errHandshake = errors.New("TLS handshake")

// nodeConn is one connection to a node, made on first use. It serves one request at a time.
type nodeConn struct {
	address string
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	tls     *tls.Config
	conn    net.Conn
	used    time.Time
	in      *bufio.Reader
	out     *bufio.Writer
	request fasthttp.Request
	answer  fasthttp.Response
}

func newNodeConn(address string, o *Options) *nodeConn {
	w := &nodeConn{address: address, connect: o.Dial, tls: o.TLS}
	h := &w.request.Header
	h.DisableNormalizing()
	h.SetNoDefaultContentType(true)
	h.SetHost(address)
	h.SetUserAgent("twotier-client")
	switch {
	case o.Authorization != "":
		h.Set("Authorization", o.Authorization)
	case o.Token != "":
		h.Set("Authorization", "Bearer "+o.Token)
	}
	return w
}

// send sends the request and reads the answer, which is valid until the next call. It stops early
// when ctx ends. If the error wraps errDial, nothing was sent.
func (w *nodeConn) send(ctx context.Context, by time.Time) (err error) {
	if w.conn != nil && (time.Since(w.used) > maxIdleTime || idle.Closed(w.conn)) {
		w.close()
	}
	if w.conn == nil {
		if err := w.dial(ctx, by); err != nil {
			return fmt.Errorf("%w: %w", errDial, err)
		}
	}
	conn := w.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() || err != nil || w.answer.ConnectionClose() {
			w.close()
		}
	}()
	if err := conn.SetDeadline(by); err != nil {
		return err
	}
	if ctx.Err() != nil { // it may have ended before the deadline was set
		return ctx.Err()
	}
	if err := w.request.Write(w.out); err != nil {
		return err
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	w.answer.Reset()
	if err := w.answer.ReadLimitBody(w.in, maxAnswer); err != nil {
		return err
	}
	w.used = time.Now()
	return nil
}

func (w *nodeConn) dial(ctx context.Context, by time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	conn, err := w.connect(ctx, "tcp", w.address)
	if err != nil {
		return err
	}
	if w.tls != nil {
		c := w.tls.Clone()
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(w.address)
		}
		secure := tls.Client(conn, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("%w: %w", errHandshake, errors.Join(err, conn.Close()))
		}
		conn = secure
	}
	w.conn = conn
	if w.in == nil {
		w.in, w.out = bufio.NewReaderSize(conn, bufferSize), bufio.NewWriterSize(conn, bufferSize)
	} else {
		w.in.Reset(conn)
		w.out.Reset(conn)
	}
	return nil
}

// close closes the connection, if there is one.
func (w *nodeConn) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}
