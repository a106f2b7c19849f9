package httpapi

import (
	"errors"
	"io"
	"net"

	"github.com/valyala/fasthttp"
)

// prefetched is how much of a body of known length fasthttp has read before it calls the handler.
const prefetched = 8 << 10

// readBody reads the body of a request, up to most bytes. It is called after the sender was
// checked, and reserves memory before using it. A connection is closed if a body on it is not read
// to its end.
func readBody(ctx *fasthttp.RequestCtx, most int) *problem {
	if !ctx.Request.IsBodyStream() {
		return nil
	}
	size := ctx.Request.Header.ContentLength()
	var body []byte
	var p *problem
	switch {
	case size > most:
		return tooLarge()
	case size >= 0 && size <= prefetched:
		ctx.PostBody() // this closes the stream
		return nil
	case size > 0:
		body, p = readSized(ctx, size)
	default:
		body, p = readChunks(ctx, most)
	}
	if p == nil {
		ctx.Request.SetBodyRaw(body)
	}
	return p
}

func tooLarge() *problem {
	return &problem{kind: kindTooLarge, detail: "want at most 64 KiB, or 1 MiB for /v1/batch"}
}

// readSized reads a body of known length.
func readSized(ctx *fasthttp.RequestCtx, size int) ([]byte, *problem) {
	m := memoryOf(ctx)
	if p := m.takeRead(int64(max(size, pooledBody))); p != nil {
		return nil, p
	}
	body := m.buffer(size)
	if _, err := io.ReadFull(ctx.RequestBodyStream(), body); err != nil {
		return nil, problemOfReading(err)
	}
	return body, nil
}

// readChunks reads a body of unknown length.
func readChunks(ctx *fasthttp.RequestCtx, most int) ([]byte, *problem) {
	m, in := memoryOf(ctx), ctx.RequestBodyStream()
	body := make([]byte, 0, prefetched)
	for {
		if len(body) == cap(body) {
			if p := m.takeRead(2 * int64(cap(body))); p != nil {
				return nil, p
			}
			body = append(make([]byte, 0, 2*cap(body)), body...)
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			return nil, tooLarge()
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, problemOfReading(err)
		}
	}
}

// problemOfReading returns the problem of a request that can't be read.
func problemOfReading(err error) *problem {
	if small, ok := errors.AsType[*fasthttp.ErrSmallBuffer](err); ok && small != nil {
		return &problem{kind: kindHeaders, detail: "want at most 8 KiB"}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return &problem{kind: kindTimeout, detail: "the request did not arrive in time"}
	}
	return &problem{kind: kindMalformed, detail: "not an HTTP/1.1 request"}
}

// unread reports whether part of the body may still be on its way.
func unread(ctx *fasthttp.RequestCtx) bool {
	size := ctx.Request.Header.ContentLength()
	return ctx.Request.IsBodyStream() && (size < 0 || size > prefetched)
}
