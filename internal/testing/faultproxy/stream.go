package faultproxy

import (
	"net"
	"sync/atomic"
	"time"
)

// stream buffers messages until there is nothing more to read, so that a pipeline stays one packet.
type stream struct {
	conn    net.Conn
	waiting []byte
	bytes   *atomic.Int64
}

// maxWaiting is how many bytes are buffered before they are sent in any case.
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
	// Count first, so that received bytes have always been counted.
	s.bytes.Add(int64(len(s.waiting)))
	_, err := s.conn.Write(s.waiting)
	s.waiting = s.waiting[:0]
	return err
}

// closeWrite sends the buffered messages and the end of the stream.
func (s *stream) closeWrite() {
	// An error means that the other side is gone, which the other direction notices.
	_ = s.flush()
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// flushFirst is a reader that sends the buffered messages before it waits for more.
type flushFirst struct {
	from net.Conn
	to   *stream
}

func (f flushFirst) Read(p []byte) (int, error) {
	// Keep reading even if the receiver is gone: the sender must not block on its remaining data.
	_ = f.to.flush()
	return f.from.Read(p)
}

// downstream decides the fate of replies on one connection.
type downstream struct {
	c     *conn
	out   *stream
	lost  bool // a reply has been lost: nothing may follow it
	ended bool // the client has received the end of the stream

	cutting *mode // the mode that left counts for
	left    int64
}

// deliver applies the mode, or the rule of its request, to one message from the server.
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

// send delivers a whole reply. If the client is gone, the server's replies are still read, so that
// the server isn't disturbed while it executes earlier requests.
func (d *downstream) send(frame []byte) {
	d.c.p.counters.replies.Add(1)
	d.lost = d.out.write(frame) != nil
}

// lose delivers only the first keep bytes of a reply. It ends only the direction to the client: the
// client may be in the middle of writing a pipeline, whose rest would be lost if both were closed.
func (d *downstream) lose(frame []byte, keep int64, end bool) {
	d.c.p.counters.swallowed.Add(1)
	d.lost, d.ended = true, end
	// It makes no difference if the client is gone.
	_ = d.out.write(frame[:min(keep, int64(len(frame)))])
	if end {
		d.out.closeWrite()
	}
}

// cut delivers as much of a reply as the mode still allows.
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
