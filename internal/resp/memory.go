package resp

import (
	"errors"
	"time"

	"twotier.dev/twotier/internal/request"
)

// The accounts of memory.
const (
	smallWorks = iota
	largeWorks
	queues  // of transactions
	answers // that grow with the rules
)

// errNoMemory answers commands for which there is no memory. None of them has been executed.
const errNoMemory errorReply = codeBusy + " too much is being read and answered at this moment; " +
	"nothing was counted; retry_after_ms=1000"

// hasLargeBuffer reports whether the connection has a large buffer.
func (c *conn) hasLargeBuffer() bool { return c.small != nil }

// enlarge gives the connection a large buffer as soon as there is memory for one. It gives up at
// by.
func (c *conn) enlarge(by time.Time) bool {
	if c.hasLargeBuffer() || !c.Client.Shares[largeWorks].Take(largeWork, by) {
		return false
	}
	c.small = (*[smallInput]byte)(c.in.buf)
	buf := c.server.buffers.Get().(*[largeInput]byte)
	c.in.moveTo(buf[:])
	return true
}

// shrink returns the large buffer once the remaining bytes fit in the small one.
func (c *conn) shrink() {
	buf := (*[largeInput]byte)(c.in.buf)
	c.in.moveTo(c.small[:])
	c.small = nil
	c.server.buffers.Put(buf)
	c.Client.Shares[largeWorks].Release(largeWork)
}

// reserveWork reserves the memory to execute the received commands. If there is none, the
// connection fails.
func (c *conn) reserveWork() bool {
	c.taken = 0
	if !c.hasLargeBuffer() {
		c.taken = workBytes(c.in.end - c.in.start)
	}
	if c.taken > 0 && !c.Client.Shares[smallWorks].Take(c.taken,
		c.now.Add(c.server.opts.RequestTimeout)) {
		c.taken = 0
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(appendError(nil, errNoMemory))
		c.failed = errors.New("no memory")
		return false
	}
	c.work = c.server.works.get(c.hasLargeBuffer())
	return true
}

// reserveAnswer reserves memory for an answer that grows with what the node has, before it is
// built. The whole share of an address is enough for any answer, so that it builds one large answer
// at a time. reserveAnswer returns the number of bytes for releaseAnswer.
func (c *conn) reserveAnswer(n int64) (taken int64, ok bool) {
	taken = min(n, c.server.conns.Accounts[answers].Each)
	by := time.Now().Add(c.server.opts.RequestTimeout / 2)
	return taken, c.Client.Shares[answers].Take(taken, by)
}

// releaseAnswer returns what reserveAnswer has reserved, once the answer is written.
func (c *conn) releaseAnswer(n int64) { c.Client.Shares[answers].Release(n) }

// finishWork returns the work to its pool, releases its memory, and drops an unused large buffer.
func (c *conn) finishWork() {
	w, large := c.work, c.hasLargeBuffer()
	c.work = nil
	if !w.context.Finish() {
		w.renewContext()
	}
	c.flushTally()
	small := c.server.conns.Accounts[smallWorks]
	if lean := w.ResultCapacity() <= leanOps; lean || large || small.InUse() <= small.Most/2 {
		c.server.works.put(w, large)
	}
	c.releaseWork()
	if large && c.in.end-c.in.start < smallInput && !c.filled {
		c.shrink()
	}
}

// releaseWork returns the memory that reserveWork has reserved.
func (c *conn) releaseWork() {
	if c.taken > 0 {
		c.Client.Shares[smallWorks].Release(c.taken)
		c.taken = 0
	}
}

// releaseAll returns all memory of the connection.
func (c *conn) releaseAll() {
	c.work = nil // after a panic it may be in any state, and is left to the collector
	c.releaseWork()
	c.dropTransaction()
	if c.hasLargeBuffer() {
		c.in.start, c.in.end = 0, 0
		c.shrink()
	}
	c.End()
}

// renewContext replaces a context that another goroutine may still hold.
func (w *work) renewContext() { w.context = new(request.Context) }
