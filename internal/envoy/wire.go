package envoy

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// prefaceBytes is the length of the client's connection preface (RFC 9113, 3.4).
	prefaceBytes = len(http2.ClientPreface)
	// frameHead is the length of a frame header (RFC 9113, 4.1).
	frameHead = 9
	// readBytes is the size of the buffer for reading.
	readBytes = 16 << 10
)

// framedConn is a decrypted connection that follows the frames of HTTP/2 in both directions: a
// request exists from the frame with its headers until the frame that ends its answer is written,
// or until one end resets it. The gRPC library reports neither.
//
// Read returns no byte of the next frame, so the library has handled a frame completely before the
// next one is examined. It also returns nothing while a write is in progress: otherwise the replies
// to the frames of a client that does not read would queue up.
type framedConn struct {
	net.Conn
	conn    *conn
	in      *bufio.Reader
	left    int    // bytes of the current frame, or of the preface, that Read has not returned
	current []byte // the rest of the current frame if it was held back; nil means that in has it
	held    held

	writing sync.Mutex // held during a write
	out     frameScanner
	ended   []uint32
}

// newFramedConn follows the frames on a client's connection.
func newFramedConn(secured net.Conn, c *conn) *framedConn {
	return &framedConn{Conn: secured, conn: c, in: bufio.NewReaderSize(secured, readBytes),
		left: prefaceBytes, held: held{begun: make(chan *stream, 1)}}
}

// Read implements [net.Conn].
func (w *framedConn) Read(b []byte) (n int, err error) {
	if w.left == 0 {
		if err := w.nextFrame(); err != nil {
			return 0, err
		}
	}
	b = b[:min(len(b), w.left)]
	if w.current != nil {
		n = copy(b, w.current)
		w.current = w.current[n:]
	} else {
		n, err = uninterrupted{w}.Read(b)
	}
	if w.left -= n; w.left == 0 {
		w.current = nil
	}
	return n, err
}

// waitForWriter waits for the end of a write in progress.
func (w *framedConn) waitForWriter() {
	w.writing.Lock()
	defer w.writing.Unlock()
}

// Write implements [net.Conn]. It closes the connection if the client does not read in time.
func (w *framedConn) Write(b []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.ended = w.ended[:0]
	w.out.scan(b, func(f frame) {
		if f.kind == http2.FrameRSTStream || f.ends {
			w.ended = append(w.ended, f.stream)
		}
	})
	_ = w.Conn.SetWriteDeadline(time.Now().Add(w.conn.server.patience()))
	n, err := w.Conn.Write(b)
	if err != nil {
		w.conn.Close()
		return n, err
	}
	w.conn.endStreams(w.ended...)
	return n, nil
}

// frame is the header of a frame.
type frame struct {
	length int
	kind   http2.FrameType
	ends   bool // it is the last one that its sender sends on the stream
	stream uint32
}

// decodeFrame decodes the header of a frame.
func decodeFrame(b []byte) frame {
	f := frame{length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]), kind: http2.FrameType(b[3]),
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)}
	f.ends = (f.kind == http2.FrameData || f.kind == http2.FrameHeaders) &&
		http2.Flags(b[4]).Has(http2.FlagDataEndStream) // the same bit for both
	return f
}

// frameScanner finds the frames in written bytes.
type frameScanner struct {
	head [frameHead]byte
	have int // bytes of head
	left int // bytes of the current frame that have not passed
}

// scan calls passed with each frame whose header ends in b.
func (s *frameScanner) scan(b []byte, passed func(frame)) {
	for len(b) > 0 {
		if s.left > 0 {
			n := min(s.left, len(b))
			s.left -= n
			b = b[n:]
			continue
		}
		n := copy(s.head[s.have:], b)
		s.have += n
		b = b[n:]
		if s.have == frameHead {
			f := decodeFrame(s.head[:])
			s.have, s.left = 0, f.length
			passed(f)
		}
	}
}
