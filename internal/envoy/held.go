package envoy

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"twotier.dev/twotier/internal/listener"
)

// This file lets a connection go on reading while a request waits for memory. The requests that
// hold the memory may need what comes next: their messages, or windows for their answers. The
// headers of the waiting request, and all frames that must not overtake them, are held back. If
// there is no memory for that, the connection is not read.

// maxFrame is the length of the longest frame that HTTP/2 allows by default. The library refuses
// longer ones.
const maxFrame = 16 << 10

// held are the frames that a connection holds back, in the order of their arrival. It belongs to
// the goroutine that reads.
type held struct {
	frames  []heldFrame
	headers int    // so many of the frames begin requests
	seen    int    // so many frames have been examined since the last request began
	waits   bool   // a request waits for memory: its headers are the first of frames
	stream  uint32 // of that request

	mu sync.Mutex // guards sending to begun, and the read deadline
	// begun receives the request once it has its memory, or nil if there is none in time. Then the
	// read deadline interrupts the goroutine that reads.
	begun chan *stream
}

// heldFrame is a frame and the time until which it waits.
type heldFrame struct {
	frame
	bytes []byte // with its header; nil once it has passed
	by    time.Time
}

// mayHold reports whether one more frame may be held back, apart from its memory.
func (h *held) mayHold(f frame) bool {
	return f.length <= maxFrame && (f.kind != http2.FrameHeaders || h.headers < maxStreams)
}

// mustWait reports whether a frame must not overtake the headers of the waiting request. Headers
// never overtake each other: their compression has a state.
func (h *held) mustWait(f frame) bool {
	return h.waits && (f.kind == http2.FrameHeaders || f.kind == http2.FrameContinuation ||
		f.stream >= h.stream)
}

// nextFrame makes the next frame that need not wait the current one, and accounts for it.
func (w *framedConn) nextFrame() error {
	h := &w.held
	for {
		w.takeBegun()
		for w.left == 0 && h.seen < len(h.frames) {
			w.examineHeld()
		}
		if w.left > 0 {
			return nil
		}
		head, err := w.in.Peek(frameHead)
		if w.isInterrupted(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.passOrHold(decodeFrame(head)); err != nil {
			return err
		}
	}
}

// examineHeld makes the next frame that was held back the current one if it need not wait any more.
func (w *framedConn) examineHeld() {
	h := &w.held
	f := h.frames[h.seen]
	switch {
	case f.bytes == nil || h.mustWait(f.frame):
	case w.mayPass(f.frame):
		w.passHeld(h.seen)
		return
	default:
		w.await(f.frame, f.by)
	}
	h.seen++
}

// passOrHold makes a frame that has just arrived the current one, or holds it back.
func (w *framedConn) passOrHold(f frame) error {
	h, c := &w.held, w.conn
	by := time.Now().Add(c.roomWait())
	waits := h.mustWait(f)
	switch {
	case !waits && w.mayPass(f):
	case h.mayHold(f) && c.reserveHeld(f):
		if err := w.hold(f, by); err != nil || waits {
			return err
		}
		w.await(f, by)
		return nil
	case waits: // there is no memory for it: it is left unread until the request has begun
		w.endWait(<-h.begun)
		return nil
	default:
		c.arriving = c.beginStream(f.stream, int64(f.length), by)
	}
	w.left = frameHead + f.length
	return nil
}

// mayPass reports whether a frame need not wait for memory. It accounts for it then.
func (w *framedConn) mayPass(f frame) bool {
	w.waitForWriter()
	if f.kind != http2.FrameHeaders {
		w.conn.accountFrame(f)
		return true
	}
	c, n := w.conn, int64(f.length)
	c.arriving = c.beginStream(f.stream, n, time.Time{})
	return c.arriving != nil || c.findStream(f.stream) != nil ||
		!c.Client.Shares[calls].Fits(begunBytes(n))
}

// hold reads a frame and holds it back.
func (w *framedConn) hold(f frame, by time.Time) error {
	bytes := make([]byte, frameHead+f.length)
	if _, err := io.ReadFull(uninterrupted{w}, bytes); err != nil {
		return err
	}
	h := &w.held
	h.frames = append(h.frames, heldFrame{f, bytes, by})
	h.seen = len(h.frames)
	if f.kind == http2.FrameHeaders {
		h.headers++
	}
	return nil
}

// await lets a request, whose headers are the first frame that is held back, wait for memory.
func (w *framedConn) await(f frame, by time.Time) {
	h := &w.held
	h.waits, h.stream = true, f.stream
	// The goroutine that reads has not ended, so the server does not wait for its goroutines yet.
	w.conn.server.Go(func() {
		st := w.conn.beginStream(f.stream, int64(f.length), by)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.begun <- st
		_ = w.Conn.SetReadDeadline(listener.PastDeadline())
	})
}

// takeBegun makes the headers of the request that has waited the current frame, once it need not
// wait any more.
func (w *framedConn) takeBegun() {
	select {
	case st := <-w.held.begun:
		w.endWait(st)
	default:
	}
}

// endWait makes the headers of the request that has waited the current frame.
func (w *framedConn) endWait(st *stream) {
	h := &w.held
	h.mu.Lock()
	_ = w.Conn.SetReadDeadline(time.Time{})
	h.mu.Unlock()
	h.waits, w.conn.arriving = false, st
	h.frames = slices.DeleteFunc(h.frames, func(f heldFrame) bool { return f.bytes == nil })
	w.waitForWriter()
	w.passHeld(0)
}

// passHeld makes a frame that was held back the current one.
func (w *framedConn) passHeld(i int) {
	h := &w.held
	f := &h.frames[i]
	w.conn.releaseHeld(f.frame)
	w.left, w.current, f.bytes = len(f.bytes), f.bytes, nil
	h.seen = i + 1
	if f.kind == http2.FrameHeaders {
		h.headers--
	}
	if !h.waits && h.seen == len(h.frames) {
		h.frames, h.seen = h.frames[:0], 0
	}
}

// uninterrupted reads from a connection, whatever begins meanwhile.
type uninterrupted struct{ *framedConn }

// Read implements [io.Reader].
func (u uninterrupted) Read(b []byte) (n int, err error) {
	for {
		n, err = u.in.Read(b)
		if n > 0 || !u.isInterrupted(err) {
			return n, err
		}
	}
}

// isInterrupted reports whether a read ended because a request need not wait any more.
func (w *framedConn) isInterrupted(err error) bool {
	h := &w.held
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.begun) == 0 {
		return false
	}
	_ = w.Conn.SetReadDeadline(time.Time{})
	return true
}

// heldBytes returns the memory of a frame that is held back.
func heldBytes(f frame) int64 { return frameBytes + frameHead + int64(f.length) }

// reserveHeld reserves the memory of a frame that is held back.
func (c *conn) reserveHeld(f frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := heldBytes(f)
	if c.closed || !c.Client.Shares[holding].TryTake(n) {
		return false
	}
	c.held += n
	return true
}

// releaseHeld releases the memory of a frame that passes.
func (c *conn) releaseHeld(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.releaseHeldLocked(heldBytes(f))
	}
}

func (c *conn) releaseHeldLocked(n int64) {
	c.held -= n
	c.Client.Shares[holding].Release(n)
}
