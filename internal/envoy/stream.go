package envoy

import (
	"context"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
)

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
	st.conn.server.CountLimited()
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
