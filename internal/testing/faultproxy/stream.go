package faultproxy

import (
	"net"
	"sync/atomic"
	"time"
)

// stream gathers messages until there is nothing more to read, so that a pipeline stays one packet.
type stream struct {
	conn    net.Conn
	waiting []byte
	bytes   *atomic.Int64
}

// maxWaiting is how much is gathered before it is sent anyway.
const maxWaiting = 64 << 10

func (s *stream) write(frame []byte) error {
	s.waiting = append(s.waiting, frame...)
	if len(s.waiting) < maxWaiting {
		return nil
	}
	return s.flush()
}

func (s *stream) flush() error {
	if len(s.waiting) == 0 {
		return nil
	}
	// Counted first: whoever has received them finds them counted.
	s.bytes.Add(int64(len(s.waiting)))
	_, err := s.conn.Write(s.waiting)
	s.waiting = s.waiting[:0]
	return err
}

// closeWrite sends what waits, and the end of the stream.
func (s *stream) closeWrite() {
	// Errors mean that the other side is gone, which its own direction notices.
	_ = s.flush()
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// flushFirst sends what has been gathered before it waits for more.
type flushFirst struct {
	from net.Conn
	to   *stream
}

func (f flushFirst) Read(p []byte) (int, error) {
	// A receiver that is gone doesn't end the reading: what the other side still sends must be
	// taken from it.
	_ = f.to.flush()
	return f.from.Read(p)
}

// downstream decides the fate of replies on one connection.
type downstream struct {
	c     *conn
	out   *stream
	lost  bool // a reply has been lost: nothing may follow it
	ended bool // the client has been told that there is nothing more

	cutting *mode // the mode that left counts for
	left    int64
}

// deliver treats one message from the server as the mode and its rule say.
func (d *downstream) deliver(m *mode, frame []byte) {
	var q question
	if d.c.p.raw || !isPush(frame) {
		q = d.c.answered()
	}
	if q.time {
		frame = shifted(frame, time.Duration(d.c.p.shift.Load()))
	}
	r := q.rule
	switch {
	case d.lost:
		d.c.p.counters.swallowed.Add(1)
	case r != nil:
		d.lose(frame, r.keep, r.close)
	case m.fate == swallow:
		d.lose(frame, 0, m.close)
	case m.fate == cut:
		d.cut(m, frame)
	default:
		d.send(frame)
	}
	if r != nil {
		d.c.p.lost(r)
	}
}

// send delivers a whole reply. The client may be gone; then the server's replies are still read, so
// that it isn't disturbed while it executes what was sent.
func (d *downstream) send(frame []byte) {
	d.c.p.counters.replies.Add(1)
	d.lost = d.out.write(frame) != nil
}

// lose delivers only the first keep bytes of a reply. It ends only the direction to the client: the
// client may be in the middle of writing a pipeline, whose rest would be lost if both were closed.
func (d *downstream) lose(frame []byte, keep int64, end bool) {
	d.c.p.counters.swallowed.Add(1)
	d.lost, d.ended = true, end
	// The client being gone makes no difference any more.
	_ = d.out.write(frame[:min(keep, int64(len(frame)))])
	if end {
		d.out.closeWrite()
	}
}

// cut delivers as much of a reply as the mode still lets pass.
func (d *downstream) cut(m *mode, frame []byte) {
	if d.cutting != m {
		d.cutting, d.left = m, m.bytes
	}
	if d.left > int64(len(frame)) {
		d.left -= int64(len(frame))
		d.send(frame)
		return
	}
	d.lose(frame, d.left, true)
}
