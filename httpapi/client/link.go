package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/idle"
)

// askers is the number of questions, not counting operations, that may be in flight to a node.
const askers = 4

// link is the client's connection state for one node.
type link struct {
	c       *Client
	address string
	fast    *batching.Queue[*call]
	slow    *batching.Queue[*call]
	asking  chan *nodeConn // free connections for questions
	fit     sizeLimit
	contact contact
	// up is cleared when the node does not answer. Then nothing is sent to it if another node can
	// take it.
	up atomic.Bool

	ctx  context.Context // done when the client is closed, or the node is no longer a member
	stop context.CancelFunc
}

func newLink(c *Client, address string) *link {
	l := &link{c: c, address: address, asking: make(chan *nodeConn, askers)}
	opt := batching.Options{Waiting: c.opt.MaxWaiting, Ops: c.opt.MaxBatch, Bytes: maxBody,
		Refused: l.refusalReason}
	l.fast, l.slow = batching.New[*call](opt), batching.New[*call](opt)
	l.up.Store(true)
	l.ctx, l.stop = context.WithCancel(c.ctx)
	for range askers {
		l.asking <- newNodeConn(address, &c.opt)
	}
	for range c.opt.Lanes {
		c.running.Go(func() { newLane(l).run(l.fast) })
		c.running.Go(func() { newLane(l).run(l.slow) })
	}
	c.running.Go(l.runEnd)
	return l
}

// runEnd stops the lanes and closes the connections for questions when the link ends.
func (l *link) runEnd() {
	<-l.ctx.Done()
	l.drain()
	l.fast.Close(errNotDone)
	l.slow.Close(errNotDone)
	for range askers {
		w := <-l.asking
		w.close()
	}
}

// refusalReason returns the reason why no call may wait: no lane would send it.
func (l *link) refusalReason() error {
	if l.ctx.Err() != nil {
		return errNotDone
	}
	return nil
}

// submit puts a call into the queue for a lane.
func (l *link) submit(k *call, slow bool) error {
	queue := l.fast
	if slow {
		queue = l.slow
	}
	err := queue.Put(k)
	if errors.Is(err, batching.ErrFull) {
		return fmt.Errorf("%w: %d calls wait for %s", ErrOverloaded, l.c.opt.MaxWaiting, l.address)
	}
	return err
}

// drain gives all waiting calls back to their callers.
func (l *link) drain() {
	l.fast.FailWaiting(errNotDone)
	l.slow.FailWaiting(errNotDone)
}

// recordFailure records that the node did not answer, and gives back the calls that wait for it, so
// that other nodes can take them.
func (l *link) recordFailure(err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.down(err)
	l.drain()
	l.c.refresh(nil)
}

func (l *link) down(err error) {
	if l.up.Swap(false) {
		l.c.opt.Logger.Warn("a node does not answer: falling back", "address", l.address,
			"error", err)
	}
}

// recordSuccess records that the node answered.
func (l *link) recordSuccess() {
	if !l.up.Load() && !l.up.Swap(true) {
		l.c.opt.Logger.Info("a node answers again", "address", l.address)
	}
}

// ask sends a request that is not an operation, and returns the status and a copy of the answer.
// lost reports that an attempt, maybe the only one, had no answer: the node may have executed it.
func (l *link) ask(ctx context.Context, method, uri string, body []byte,
	by time.Time) (status int, answer []byte, lost bool, err error) {
	var w *nodeConn
	select {
	case w = <-l.asking:
	case <-ctx.Done():
		return 0, nil, false, fmt.Errorf("%w: %w", errDial, ctx.Err())
	case <-l.ctx.Done():
		return 0, nil, false, fmt.Errorf("%w: %w", errDial, ErrClosed)
	}
	defer func() { l.asking <- w }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.c.cut, cancel)()
	w.request.Header.SetMethod(method)
	w.request.Header.SetContentType("application/json")
	w.request.SetRequestURI(uri)
	w.request.SetBodyRaw(body)
	w.request.Header.Del("Content-Length") // a GET would keep that of the request before it
	for range 2 {                          // a connection that was kept open may be closed by now
		kept := w.conn != nil
		l.contact.recordRequest(time.Now())
		e := w.send(ctx, by)
		l.contact.recordOutcome(&w.answer, e)
		if e == nil {
			return w.answer.StatusCode(), append([]byte(nil), w.answer.Body()...), lost, nil
		}
		err = e
		lost = lost || !errors.Is(e, errDial)
		if !kept || ctx.Err() != nil {
			break
		}
	}
	return 0, nil, lost, err
}

// contact tracks whether a node can be reached at all. A node that is only slow, or that refuses,
// can be.
type contact struct {
	answers atomic.Bool  // it has answered since it last was unreachable
	asked   atomic.Int64 // send time of the oldest unanswered request, in unix ns; 0 if none
}

// recordRequest records that a request is being sent to the node.
func (c *contact) recordRequest(now time.Time) { c.asked.CompareAndSwap(0, now.UnixNano()) }

// recordOutcome records the outcome of a request. A proxy's answer that it can't reach the node
// does not count as an answer.
func (c *contact) recordOutcome(answer *fasthttp.Response, err error) {
	switch {
	case err == nil && (answer.StatusCode() < 500 ||
		readProblem(answer.StatusCode(), answer.Body()).isFromTwotier()):
		c.answers.Store(true)
		c.asked.Store(0)
	case err == nil, errors.Is(err, errDial) && !errors.Is(err, errHandshake) && !isTimeout(err):
		c.answers.Store(false)
	}
}

// isUp reports whether the node seems to answer: it has answered, its address still accepts
// connections, and it has not been silent for longer than most.
func (c *contact) isUp(now time.Time, most time.Duration) bool {
	asked := c.asked.Load()
	return c.answers.Load() && (asked == 0 || now.Sub(time.Unix(0, asked)) < most)
}

// reachesAny reports whether any node answers. A node that leaves requests unanswered for
// Options.Timeout can't be reached.
func (c *Client) reachesAny() bool {
	if c.ctx.Err() != nil {
		return false
	}
	now := time.Now()
	return slices.ContainsFunc(c.known(c.view.Load()), func(l *link) bool {
		return l.contact.isUp(now, c.opt.Timeout)
	})
}

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
