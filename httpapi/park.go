package httpapi

import "time"

// park is what a connection needs to be without its buffers between requests. fasthttp keeps what
// it reads a request with for as long as it serves a connection. So one that has been idle for a
// moment is no longer served, but stays open: its goroutine waits for the first byte of the next
// request, and then has it served again.
type park struct {
	by     time.Time // until when the next request must have begun
	parked bool
	// first is the byte that was waited for, and unread whether nobody has read it yet. They are of
	// the goroutine that serves the connection.
	first  [1]byte
	unread bool
}

const (
	// parkAfter is how long a connection is idle before it is parked, and parkSoon how long when
	// half of the memory for those that are not is taken.
	parkAfter = 100 * time.Millisecond
	parkSoon  = time.Millisecond
)

// parkingLocked is when a connection that has just become idle is to be parked.
func (c *conn) parkingLocked(now time.Time) time.Time {
	pause := parkAfter
	if a := c.hold.allowance; a.served.Load()*awakeBytes > a.awake.most/2 {
		pause = parkSoon
	}
	if at := now.Add(pause); c.park.by.IsZero() || at.Before(c.park.by) {
		return at
	}
	return c.park.by
}

// parkLocked parks a connection on which a read has ended with nothing, if that was why.
func (c *conn) parkLocked(now time.Time) {
	c.park.parked = c.served && !c.busy && c.by.IsZero() &&
		(c.park.by.IsZero() || now.Before(c.park.by))
}

// await waits for the first byte of a request. The error is why there is none to come.
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

// isParked reports whether the connection is open although it is no longer served.
func (c *conn) isParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.park.parked
}

// isSilent reports whether nothing has come by the connection in all its time, which was not cut
// short.
func (c *conn) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.served && c.by.IsZero()
}
