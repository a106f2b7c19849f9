package envoy

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

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
	return newFramedConn(secured, raw.(*conn)), info, nil
}

// Clone implements [credentials.TransportCredentials].
func (f framedCredentials) Clone() credentials.TransportCredentials {
	return framedCredentials{f.TransportCredentials.Clone()}
}
