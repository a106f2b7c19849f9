package wire

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// patience is the least time that a call gets; no call gets more than twice as much.
	patience = 30 * time.Second
	// idleFor is the idle time up to which a connection is reused. Servers close idle connections
	// somewhat later.
	idleFor = 20 * time.Second
)

// Client posts to one server. It keeps as many connections as there are concurrent calls. It is
// safe for concurrent use.
type Client struct {
	addr string

	mu   sync.Mutex
	idle []*conn // the last one was used last
}

// NewClient returns a client for the server at host:port. It connects when it is first used.
func NewClient(addr string) *Client { return &Client{addr: addr} }

// Close closes the connections that no call uses.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		_ = k.Close()
	}
	c.idle = nil
}

// Post sends the body that build appends to its argument, and passes the body of the answer to
// read. The answer is valid until read returns. Any status other than 200 is an error.
func (c *Client) Post(path string, build func([]byte) []byte, read func([]byte) error) error {
	k, err := c.take()
	if err != nil {
		return err
	}
	status, answer, err := k.post(c.addr, path, build)
	if err != nil {
		_ = k.Close()
		return fmt.Errorf("post %s: %w", path, err)
	}
	defer c.put(k)
	if status != http.StatusOK {
		return fmt.Errorf("post %s: status %d: %.300s", path, status, answer)
	}
	return read(answer)
}

// take returns an idle connection or a new one.
func (c *Client) take() (*conn, error) {
	now := time.Now()
	k := c.pop()
	if k != nil && now.Sub(k.used) > idleFor {
		_ = k.Close()
		k = nil
	}
	if k == nil {
		socket, err := net.DialTimeout("tcp", c.addr, patience)
		if err != nil {
			return nil, err
		}
		k = &conn{Conn: socket, in: make([]byte, 16<<10)}
	}
	k.used = now
	// Setting a deadline for each call would cost as much as the rest of the call outside the
	// system.
	if now.Add(patience).After(k.deadline) {
		k.deadline = now.Add(2 * patience)
		if err := k.SetDeadline(k.deadline); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (c *Client) pop() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	k := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return k
}

// put keeps a connection for the next call, unless the server is about to close it.
func (c *Client) put(k *conn) {
	if k.closing {
		_ = k.Close()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, k)
}
