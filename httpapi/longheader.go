package httpapi

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
)

const (
	// shortHeader is the size of the buffer for reading that every connection has while it is
	// served: headers of ordinary requests fit in it.
	shortHeader = 8 << 10
	// maxHeader bounds the header of a request. A proxy that wants a decision about a request sends
	// the headers of that request along, and most proxies accept 32 to 64 KiB.
	maxHeader = 64 << 10
	// longHeaderBytes is the approximate memory of a request with a header of maxHeader bytes: the
	// read buffer, the text, and the parsed fields.
	longHeaderBytes = 4 * maxHeader
)

// endOfHeader ends the header of a request.
const endOfHeader = "\r\n\r\n"

// longHeader collects the header of a request in progress if it does not arrive at once. When it is
// longer than shortHeader, the connection is served anew with a larger buffer, from the beginning
// of the request. It belongs to the goroutine that serves the connection.
type longHeader struct {
	state headerState
	text  []byte // the bytes read while open, kept for reading them again
	again []byte // the bytes to be read again
	long  bool   // the connection is served with the larger buffer
}

// headerState is how much of a header has arrived.
type headerState uint8

const (
	// headerDone: its end has arrived, or nobody looks for it.
	headerDone headerState = iota
	// headerOpen: its end has not arrived.
	headerOpen
	// headerMoves: it does not fit, and the connection is about to be served anew.
	headerMoves
)

// begin begins a header with the bytes that were read before the first Read.
func (h *longHeader) begin(first []byte) {
	if h.text = first; !h.long {
		h.state = headerOpen
	}
}

// end ends the header with its request. Further bytes in the buffer belong to a request that was
// sent before the answer, and not all of it passes through Read.
func (h *longHeader) end() { h.state, h.text = headerDone, nil }

// scanForEnd looks for the end of an open header in the result of a Read. A header that arrives in
// pieces takes memory.
func (h *longHeader) scanForEnd(b []byte, m *memory.Request) {
	if bytes.Contains(b, []byte(endOfHeader)) || len(h.text) >= shortHeader ||
		len(h.text) <= 1 && m.ReserveRead(shortHeader) != nil {
		h.end()
		return
	}
	h.text = append(h.text, b...)
}

// moveToLargeBuffer prepares for serving the connection with the larger buffer, after the header
// did not fit in the smaller one.
func (h *longHeader) moveToLargeBuffer(m *memory.Request) *wire.Problem {
	if len(h.text) < shortHeader {
		return &wire.Problem{Kind: wire.Headers,
			Detail: "want at most 64 KiB, or at most 8 KiB if the " +
				"request is sent before the previous one was answered"}
	}
	if p := m.ReserveRead(longHeaderBytes); p != nil {
		return p
	}
	h.again = h.text
	h.end()
	h.state = headerMoves
	return nil
}

// newHTTP returns a fasthttp server with a read buffer of this size.
func (s *Server) newHTTP(buffer int) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.answerUnreadable,
		ConnState:                    connState,
		Logger:                       silent{},
		Concurrency:                  s.opts.MaxConns + 2*InnerConns(s.opts.MaxConns) + 1,
		ReadBufferSize:               buffer, // also the maximum size of a request's header
		ReadTimeout:                  s.opts.ReadTimeout,
		WriteTimeout:                 s.opts.WriteTimeout,
		IdleTimeout:                  s.opts.IdleTimeout,
		StreamRequestBody:            true, // bodies are read by package receive
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true, // fasthttp's clock is a goroutine that never ends
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
}

// serve serves a connection until it ends or is parked. Errors only concern this connection: the
// client left, or a timeout.
func (s *Server) serve(c *conn) {
	_ = s.http.ServeConn(served{c})
	if c.header.state == headerMoves {
		c.header.state, c.header.long = headerDone, true
		_ = s.wide.ServeConn(served{c})
		c.header.long = false
	}
}
