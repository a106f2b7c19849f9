package receive

import (
	"bytes"
	"errors"
	"io"
	"net"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// Path returns the path of a request as it was sent. An escaped, doubled or dotted spelling is
// a different path, whatever it might normalize to. The target is a path or, from a proxy, a whole
// URL (RFC 9112, 3.2).
func Path(target []byte) []byte {
	if len(target) > 0 && target[0] != '/' {
		_, rest, ok := bytes.Cut(target, []byte("://"))
		slash := bytes.IndexByte(rest, '/')
		if !ok || slash < 0 {
			return nil
		}
		target = rest[slash:]
	}
	if query := bytes.IndexByte(target, '?'); query >= 0 {
		return target[:query]
	}
	return target
}

// CheckFraming refuses a request that states its length in two ways. A proxy on the way may have
// believed the other one, and the next request on the connection may then belong to another client
// (request smuggling; RFC 9112, 6.3). fasthttp believes the chunks. It also returns the header of
// [singletons] that the request has twice, or "".
func CheckFraming(h *fasthttp.RequestHeader) (twice string, p *wire.Problem) {
	const length, chunks = 1, 2
	seen := 0
	var given singles
	for raw := h.RawHeaders(); len(raw) > 0; {
		line := raw
		if end := bytes.IndexByte(raw, '\n'); end >= 0 {
			line, raw = raw[:end], raw[end+1:]
		} else {
			raw = nil
		}
		switch {
		case hasName(line, "content-length:"):
			seen |= length
		case hasName(line, "transfer-encoding:"):
			seen |= chunks
		case given.add(line):
			twice = given.twice
		}
	}
	if seen != length|chunks {
		return twice, nil
	}
	return twice, &wire.Problem{Kind: wire.Malformed,
		Detail: "both Content-Length and Transfer-Encoding; want one"}
}

// hasName reports whether a header line begins with a name, given in any case.
func hasName(line []byte, name string) bool {
	return len(line) >= len(name) && line[0]|0x20 == name[0]|0x20 &&
		bytes.EqualFold(line[:len(name)], []byte(name))
}

// Prefetched is the part of a body of known length that fasthttp reads before it calls the handler.
const Prefetched = 8 << 10

// ReadBody reads the body of a request, up to most bytes. It is called after the sender was
// checked, and reserves memory in m before using it. It closes a connection whose body it does not
// read to the end.
func ReadBody(ctx *fasthttp.RequestCtx, m *memory.Request, most int) *wire.Problem {
	if !ctx.Request.IsBodyStream() {
		return nil
	}
	size := ctx.Request.Header.ContentLength()
	var body []byte
	var p *wire.Problem
	switch {
	case size > most:
		return tooLargeProblem()
	case size >= 0 && size <= Prefetched:
		ctx.PostBody() // this closes the stream
		return nil
	case size > 0:
		body, p = readSized(ctx, m, size)
	default:
		body, p = readChunks(ctx, m, most)
	}
	if p == nil {
		ctx.Request.SetBodyRaw(body)
	}
	return p
}

func tooLargeProblem() *wire.Problem {
	return &wire.Problem{Kind: wire.TooLarge, Detail: "want at most 64 KiB, 1 MiB for /v1/batch " +
		"and /json, or 256 KiB for /v1/rules"}
}

// readSized reads a body of known length.
func readSized(ctx *fasthttp.RequestCtx, m *memory.Request, size int) ([]byte, *wire.Problem) {
	if p := m.ReserveRead(int64(max(size, memory.PooledBody))); p != nil {
		return nil, p
	}
	body := m.Buffer(size)
	if _, err := io.ReadFull(ctx.RequestBodyStream(), body); err != nil {
		return nil, ProblemOf(err)
	}
	return body, nil
}

// readChunks reads a body of unknown length.
func readChunks(ctx *fasthttp.RequestCtx, m *memory.Request, most int) ([]byte, *wire.Problem) {
	in := ctx.RequestBodyStream()
	body := make([]byte, 0, Prefetched)
	for {
		if len(body) == cap(body) {
			if p := m.ReserveRead(2 * int64(cap(body))); p != nil {
				return nil, p
			}
			body = append(make([]byte, 0, 2*cap(body)), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			return nil, tooLargeProblem()
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, ProblemOf(err)
		}
	}
}

// IsHeaderTooLong reports whether a request can't be read because its header is longer than the
// buffer.
func IsHeaderTooLong(err error) bool {
	small, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err)
	return ok && small != nil
}

// ProblemOf returns the problem of a request that can't be read.
func ProblemOf(err error) *wire.Problem {
	if IsHeaderTooLong(err) {
		return &wire.Problem{Kind: wire.Headers, Detail: "want at most 64 KiB"}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return &wire.Problem{Kind: wire.Timeout, Detail: "the request did not arrive in time"}
	}
	return &wire.Problem{Kind: wire.Malformed, Detail: "not an HTTP/1.1 request"}
}

// HasUnreadBody reports whether part of the body may still be on its way.
func HasUnreadBody(ctx *fasthttp.RequestCtx) bool {
	size := ctx.Request.Header.ContentLength()
	return ctx.Request.IsBodyStream() && (size < 0 || size > Prefetched)
}

// CheckMedia refuses bodies that are neither JSON nor, if that is allowed, YAML. This is a security
// measure: it keeps pages of other sites from writing to this server. A browser sends a preflight
// request before it sends application/json to another site, and it sends Origin with every POST to
// another site.
func CheckMedia(h *fasthttp.RequestHeader, yaml bool) *wire.Problem {
	want := "want Content-Type: application/json"
	if yaml {
		want += " or application/yaml"
	}
	if len(h.Peek("Content-Encoding")) > 0 {
		return &wire.Problem{Kind: wire.MediaType, Detail: "want a body without Content-Encoding"}
	}
	media := h.ContentType()
	switch {
	case string(media) == "application/json":
		return nil
	case len(media) == 0:
		if len(h.Peek("Origin")) > 0 {
			return &wire.Problem{Kind: wire.MediaType, Detail: want}
		}
		return nil
	}
	media, _, _ = bytes.Cut(media, []byte{';'})
	media = bytes.TrimSpace(media)
	if bytes.EqualFold(media, []byte("application/json")) ||
		yaml && bytes.EqualFold(media, []byte("application/yaml")) {
		return nil
	}
	return &wire.Problem{Kind: wire.MediaType, Detail: want + ", got " + request.Clip(media)}
}

// singletons lists the headers that a request of the API has at most once, apart from those that
// fasthttp checks: Host, Content-Length and Transfer-Encoding. A proxy on the way may have believed
// the other value.
var singletons = [...]string{
	"Authorization", "Content-Encoding", "Content-Type", "If-Match", "Origin", "Twotier-Pass",
	"Twotier-Process", "Twotier-Sequence", "Twotier-Session", "Twotier-Timeout",
}

// singles has the singletons that lines of a header have named.
type singles struct {
	seen  uint16 // a bit for each of singletons
	twice string
}

// add adds a line. It reports whether the line names a singleton for the second time.
func (s *singles) add(line []byte) bool {
	if len(line) == 0 {
		return false
	}
	first := line[0] | 0x20
	for i, name := range singletons {
		if name[0]|0x20 != first || len(line) <= len(name) || line[len(name)] != ':' ||
			!hasName(line, name) {
			continue
		}
		bit := uint16(1) << i
		if s.seen&bit != 0 {
			s.twice = name
			return true
		}
		s.seen |= bit
	}
	return false
}

// TwiceProblem is the problem of a request that has a header twice.
func TwiceProblem(name string) *wire.Problem {
	return &wire.Problem{Kind: wire.Malformed, Detail: name + ": given twice"}
}
