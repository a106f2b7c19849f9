package envoy

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/listener"
)

// The accounts of memory. A request takes from calls and then from works, which has room for a
// message of 16 KiB of each request that calls admits, so such requests don't wait for each other
// in a circle.
const (
	calls   = iota // of every request
	holding        // of frames that are held back meanwhile
	works          // of longer messages, executing and answering
	streams        // of long-lived streams
	accounts
)

// conn is a connection and the requests on it.
type conn struct {
	*listener.Admitted
	server *Server
	gone   chan struct{} // closed when the connection is
	// arriving is the request whose headers were read last. It belongs to the goroutine that reads.
	arriving *stream

	mu      sync.Mutex
	closed  bool
	streams map[uint32]*stream // the requests whose answers are not written, by stream identifier
	held    int64              // bytes of frames that are held back
	running int                // the requests being executed
	ended   time.Time          // when the last execution ended
	unread  *time.Timer        // runs closeIfUnread; nil while no answer waits
}

// newConn returns the state of a connection.
func (s *Server) newConn(a *listener.Admitted) *conn {
	return &conn{Admitted: a, server: s, gone: make(chan struct{}), streams: map[uint32]*stream{}}
}

// clientAddr is the address of a connection together with the connection. Requests carry it in
// their context, as the address of their peer.
type clientAddr struct {
	net.Addr
	conn *conn
}

// RemoteAddr returns a [clientAddr].
func (c *conn) RemoteAddr() net.Addr { return clientAddr{c.Conn.RemoteAddr(), c} }

// Close closes the connection and releases the memory of its requests, except those still
// executing.
func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	if first {
		close(c.gone)
	}
	if c.unread != nil {
		c.unread.Stop()
	}
	for id := range c.streams {
		c.endStreamLocked(id)
	}
	c.releaseHeldLocked(c.held)
	c.mu.Unlock()
	return c.Admitted.Close()
}

// scheduleCloseLocked schedules closeIfUnread.
func (c *conn) scheduleCloseLocked(after time.Duration) {
	if c.unread == nil && !c.closed {
		c.unread = time.AfterFunc(after, c.closeIfUnread)
	}
}

// closeIfUnread closes the connection if the client has left an answer unread for patience: HTTP/2
// lets a client grant no window, and the answers stay in memory.
func (c *conn) closeIfUnread() {
	c.mu.Lock()
	c.unread = nil
	var oldest time.Time
	for _, st := range c.streams {
		if !st.ended.IsZero() && (oldest.IsZero() || st.ended.Before(oldest)) {
			oldest = st.ended
		}
	}
	left := c.server.patience() - time.Since(oldest)
	if !oldest.IsZero() && left > 0 {
		c.scheduleCloseLocked(left)
	}
	c.mu.Unlock()
	if !oldest.IsZero() && left <= 0 {
		c.server.counters.unread.Add(1)
		c.Close()
	}
}

// closeIfIdle closes the connection if it executes no request and has executed none for the grace
// period, whatever else its client has begun: it may be silent, send a request that never ends, or
// read no answer.
func (c *conn) closeIfIdle(now time.Time, grace time.Duration) {
	c.mu.Lock()
	idle := c.running == 0 && now.Sub(c.ended) >= grace
	c.mu.Unlock()
	if idle {
		c.Close()
	}
}

// framedCredentials wraps credentials so that their connections count the HTTP/2 frames that pass,
// after decryption.
type framedCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (f framedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &framedConn{Conn: secured, conn: raw.(*conn),
		in: bufio.NewReaderSize(secured, readBytes), left: prefaceBytes,
		held: held{begun: make(chan *stream, 1)}}, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (f framedCredentials) Clone() credentials.TransportCredentials {
	return framedCredentials{f.TransportCredentials.Clone()}
}

const (
	// headBytes is the approximate memory of a request without the parts that its client chooses:
	// its goroutine, its contexts and the state in the gRPC library.
	headBytes = 10 << 10
	// ownBytes is the memory for the metadata, message and answer of an ordinary request.
	ownBytes = 4 << 10
	// answeredBytes is the approximate memory of an executed request whose answer is not written,
	// without the answer and the metadata: its goroutine has ended.
	answeredBytes = 3 << 10
	// fieldBytes, frameBytes and descriptorBytes are the approximate memory of a field of the
	// metadata, a frame of the message and a descriptor, in addition to the bytes in them.
	fieldBytes, frameBytes, descriptorBytes = 96, 192, 1 << 10
	// stayBytes is the memory of a long-lived stream: the library queues 64 KiB of answers.
	stayBytes = 128 << 10
)

// stream is a request, from the arrival of its headers until its answer is written and its
// execution has ended. It holds the memory that the request takes.
type stream struct {
	conn *conn
	id   uint32
	// used is the number of bytes that have arrived, of which own were taken when the request
	// began. They belong to the goroutine that reads.
	used, own int64
	headers   int64 // the part of the metadata

	// The connection's mutex guards the rest.
	taken     [accounts]int64 // bytes of each share of the client
	unwritten bool            // the answer is not written
	running   bool
	ended     time.Time // when the execution ended
	cancel    context.CancelFunc
}

// accountFrame accounts for a frame of a request that has begun, before the gRPC library reads it.
func (c *conn) accountFrame(f frame) {
	n := int64(f.length)
	switch f.kind {
	case http2.FrameData:
		if st := c.findStream(f.stream); st != nil && !st.grow(frameBytes+n, c.roomWait()) {
			st.abort()
		}
	case http2.FrameRSTStream:
		c.endStreams(f.stream)
	}
}

// beginStream returns a request whose headers of n bytes are about to be read, or nil if there is
// no memory for it until a given time. Metadata takes up to twice its length as it is sent; it is
// taken now because admit can't wait.
func (c *conn) beginStream(id uint32, n int64, by time.Time) *stream {
	st := &stream{conn: c, id: id, unwritten: true, own: begunBytes(n) - headBytes}
	if c.findStream(id) != nil || !st.reserve(calls, begunBytes(n), c.gone, by) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		st.unwritten = false
		st.releaseLocked()
		return nil
	}
	c.streams[id] = st
	return st
}

// begunBytes returns the memory of a request that begins with headers of n bytes.
func begunBytes(n int64) int64 { return headBytes + ownBytes + 2*n }

// findStream returns a request, or nil if its answer has been written.
func (c *conn) findStream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// endStreams ends requests whose answers are written, or that one side has reset.
func (c *conn) endStreams(ids ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.endStreamLocked(id)
	}
}

func (c *conn) endStreamLocked(id uint32) {
	if st := c.streams[id]; st != nil {
		delete(c.streams, id)
		st.unwritten = false
		st.releaseLocked()
	}
}

// roomWait returns how long a request waits for memory: it has RequestTimeout to arrive. An Envoy
// has one address, and asks for all of its clients at once.
func (c *conn) roomWait() time.Duration { return c.server.opts.RequestTimeout }

// grow accounts for n bytes that have arrived. It waits for memory, and reports whether there is
// enough.
func (st *stream) grow(n int64, wait time.Duration) bool {
	c := st.conn
	over := st.used + n - st.own
	if over > 0 && !(c.Client.Shares[works].Fits(over) &&
		st.reserve(works, min(n, over), c.gone, time.Now().Add(wait))) {
		return false
	}
	st.used += n
	return true
}

// reserve reserves n more bytes of an account. It waits until by, or until gone is closed.
func (st *stream) reserve(of int, n int64, gone <-chan struct{}, by time.Time) bool {
	c := st.conn
	share := &c.Client.Shares[of]
	if !share.Fits(n) || !share.TakeUnless(gone, n, by) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.taken[of] += n
	st.releaseLocked() // if it has ended meanwhile
	return true
}

// shrinkTo returns all bytes except for n.
func (st *stream) shrinkTo(n int64) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range []int{calls, works} {
		if rest := st.taken[of] - n; rest > 0 {
			c.Client.Shares[of].Release(rest)
			st.taken[of] -= rest
		}
		n -= st.taken[of]
	}
}

// releaseLocked releases the memory of a request once its answer is written and its execution has
// ended.
func (st *stream) releaseLocked() {
	if st.unwritten || st.running {
		return
	}
	for of, n := range st.taken {
		if n > 0 {
			st.conn.Client.Shares[of].Release(n)
		}
	}
	st.taken = [accounts]int64{}
	if st.cancel != nil {
		st.cancel()
	}
}

// setCancel sets the function that cancels the request when it is released or aborted.
func (st *stream) setCancel(cancel context.CancelFunc) {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	st.cancel = cancel
	st.releaseLocked() // if it has ended meanwhile
}

// abort cancels a request that sends more than there is memory for. It ends with CANCELLED.
func (st *stream) abort() {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	if st.cancel != nil {
		st.cancel()
	}
}

// markRunning marks the request as being executed, and reports whether its client still waits for
// it. counts is 1 for a request that a stop waits for, and 0 for a long-lived stream.
func (st *stream) markRunning(counts int) bool {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !st.unwritten {
		return false
	}
	st.running = true
	c.running += counts
	return true
}

// markExecuted marks the request as executed. From now on patience bounds the wait for its client
// to read the answer.
func (st *stream) markExecuted(counts int) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running -= counts
	st.running, st.ended = false, time.Now()
	c.ended = st.ended
	if st.unwritten {
		c.scheduleCloseLocked(c.server.patience())
	}
	st.releaseLocked()
}

// streamKey is the key of a context's request.
type streamKey struct{}

// streamOf returns the request of a context.
func streamOf(ctx context.Context) *stream { return ctx.Value(streamKey{}).(*stream) }

// bytesOf returns the memory of a message.
func bytesOf(message any) int64 {
	m, ok := message.(proto.Message)
	if !ok {
		return 0
	}
	return int64(proto.Size(m))
}
