package envoy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/verdicts"
)

// codec decodes requests as gRPC does, and also accepts strings that are not UTF-8. A header may
// have any bytes (RFC 9110, section 5.5) and Envoy forwards them unchanged, but a string of
// protocol buffers may not: a client could choose a value that leaves its requests without a
// decision.
type codec struct{ encoding.CodecV2 }

// newCodec returns the codec of a server.
func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Bounds of a message before it is decoded: two bytes of it may become a hundred.
const (
	smallMessage = 4 << 10 // the size of a message that is not examined
	maxParts     = 4 << 10 // descriptors and entries
)

// Unmarshal decodes data into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if data.Len() > smallMessage && countFields(data.Materialize(), 2) > maxParts {
		return errParts
	}
	err := c.CodecV2.Unmarshal(data, v)
	r, isRequest := v.(*ratelimitv3.RateLimitRequest)
	if err == nil || !isRequest {
		return err
	}
	proto.Reset(r)
	return decodeAnyText(data.Materialize(), r.ProtoReflect())
}

// countFields returns the number of fields of a message and of its nested messages, down to a
// depth.
func countFields(b []byte, depth int) (n int) {
	for len(b) > 0 && n <= maxParts {
		number, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return n
		}
		value := protowire.ConsumeFieldValue(number, typ, b[tag:])
		if value < 0 {
			return n
		}
		if n++; typ == protowire.BytesType && depth > 0 {
			content, _ := protowire.ConsumeBytes(b[tag:])
			n += countFields(content, depth-1)
		}
		b = b[tag+value:]
	}
	return n
}

var errParts = errors.New("too many descriptors and entries")

var errWire = errors.New("not a message of protocol buffers")

// decodeAnyText decodes b into m, whose strings may be any bytes.
func decodeAnyText(b []byte, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	for len(b) > 0 {
		number, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return errWire
		}
		value := protowire.ConsumeFieldValue(number, typ, b[tag:])
		if value < 0 {
			return errWire
		}
		field := b[:tag+value]
		b = b[len(field):]
		if err := decodeField(fields.ByNumber(number), typ, field, tag, m); err != nil {
			return err
		}
	}
	return nil
}

// decodeField decodes one field of m, which f describes; a nil f stands for an unknown field. The
// value begins at the given index.
func decodeField(f protoreflect.FieldDescriptor, typ protowire.Type, field []byte, at int,
	m protoreflect.Message) error {
	if f == nil || typ != protowire.BytesType || f.IsMap() {
		return proto.UnmarshalOptions{Merge: true}.Unmarshal(field, m.Interface())
	}
	content, _ := protowire.ConsumeBytes(field[at:])
	switch {
	case f.Kind() == protoreflect.StringKind && !f.IsList() && !utf8.Valid(content):
		m.Set(f, protoreflect.ValueOfString(string(content)))
		return nil
	case f.Kind() == protoreflect.MessageKind && f.IsList():
		return decodeAnyText(content, m.Mutable(f).List().AppendMutable().Message())
	case f.Kind() == protoreflect.MessageKind:
		return decodeAnyText(content, m.Mutable(f).Message())
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(field, m.Interface())
}

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

// JSON is ShouldRateLimit with the JSON form of Envoy's API. over reports whether the answer is
// OVER_LIMIT.
func (l *Limiter) JSON(ctx context.Context, g *twotier.Grant, body []byte) (answer []byte,
	over bool,
	err error) {
	var r ratelimitv3.RateLimitRequest
	if protojson.Unmarshal(body, &r) != nil {
		r.Reset()
		if err := protojson.Unmarshal(replaceInvalidText(body), &r); err != nil {
			return nil, false, invalidError("not a RateLimitRequest: %v", err)
		}
	}
	response, err := l.decide(ctx, g, &r, verdicts.EnvoyJSON)
	if err != nil {
		return nil, false, err
	}
	answer, err = protojson.Marshal(response)
	return answer, response.GetOverallCode() == overLimit, err
}

// replaceInvalidText returns JSON with U+FFFD in place of invalid text: bytes that are not UTF-8,
// and escaped surrogates without the other half (RFC 8259, section 8.2). Clients that forward the
// headers of strangers send both.
func replaceInvalidText(body []byte) []byte {
	const replacement = `\ufffd`
	var b []byte
	for rest := bytes.ToValidUTF8(body, []byte(string(utf8.RuneError))); len(rest) > 0; {
		if rest[0] != '\\' {
			b, rest = append(b, rest[0]), rest[1:]
			continue
		}
		n := min(2, len(rest))
		if first, ok := decodeUnitEscape(rest); ok {
			n = len(replacement)
			second, _ := decodeUnitEscape(rest[n:])
			switch {
			case utf16.DecodeRune(first, second) != utf8.RuneError:
				n *= 2
			case utf16.IsSurrogate(first):
				b, rest = append(b, replacement...), rest[n:]
				continue
			}
		}
		b, rest = append(b, rest[:n]...), rest[n:]
	}
	return b
}

// decodeUnitEscape returns the code unit of the escape, such as \u00e9, at the front of b.
func decodeUnitEscape(b []byte) (unit rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil
}
