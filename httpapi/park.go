package httpapi

import "time"

// park lets a connection give up its buffers between requests. fasthttp keeps the buffer for
// reading requests for as long as it serves a connection. So a connection that has been idle for a
// moment is no longer served by fasthttp, but stays open: its goroutine waits for the first byte of
// the next request, and then the connection is served again.
type park struct {
	by     time.Time // by when the next request must begin
	parked bool
	// first is the byte that ended the wait. unread is set until Read has returned it. Both belong
	// to the goroutine that serves the connection.
	first  [1]byte
	unread bool
}

const (
	// parkAfter is how long a connection is idle before it is parked. parkSoon applies while more
	// than half of the memory for connections that are not parked is in use.
	parkAfter = 100 * time.Millisecond
	parkSoon  = time.Millisecond
)

// parkingLocked returns when to park a connection that has just become idle.
func (c *conn) parkingLocked(now time.Time) time.Time {
	pause := parkAfter
	if a := c.memory.allowance; a.served.Load()*awakeBytes > a.awake.most/2 {
		pause = parkSoon
	}
	if at := now.Add(pause); c.park.by.IsZero() || at.Before(c.park.by) {
		return at
	}
	return c.park.by
}

// parkLocked parks a connection whose read has just timed out, if the parking deadline was the
// reason.
func (c *conn) parkLocked(now time.Time) {
	c.park.parked = c.served && !c.busy && c.by.IsZero() &&
		(c.park.by.IsZero() || now.Before(c.park.by))
}

// await waits for the first byte of a request. The error says why none will come.
func (c *conn) await() error {
	c.mu.Lock()
	_ = c.setReadDeadlineLocked(c.park.by)
	c.mu.Unlock()
	n, err := c.Conn.Read(c.park.first[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.park.parked, c.park.unread, c.busy = false, n > 0, n > 0
	if n > 0 {
		return nil
	}
	return err
}

// isParked reports whether the connection is open although it is not being served.
func (c *conn) isParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.park.parked
}

// isSilent reports whether the connection has never received anything and is not being drained.
func (c *conn) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.served && c.by.IsZero()
}
