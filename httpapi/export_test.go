package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/account"
	"twotier.dev/twotier/internal/request"
)

// Handle answers one request without a connection.
func (s *Server) Handle(ctx *fasthttp.RequestCtx) { s.handle(ctx) }

// Awake returns the memory of connections that are not parked.
func (s *Server) Awake() int64 { return s.allowance.awake.InUse() }

// Reading returns the memory that requests take while they are read and answered.
func (s *Server) Reading() int64 { return s.allowance.reading.InUse() }

// Served returns the served calls: methods in lower case with a path, such as "get /healthz".
func (s *Server) Served() map[string]bool {
	served := make(map[string]bool)
	for path, r := range s.routes {
		served[map[bool]string{false: "get ", true: "post "}[r.post]+path] = true
		if r.get != nil {
			served["get "+path] = true
		}
		if r.put != nil {
			served["put "+path] = true
		}
	}
	return served
}

// Parser reads requests the way the server does.
type Parser struct{ d decoder }

// Single reads one operation. The result is valid until the next call.
func (p *Parser) Single(body []byte, kind twotier.Kind) (op *twotier.Op, wrong string) {
	if pr := p.d.single(body, kind); pr != nil {
		return nil, pr.text()
	}
	return &p.d.Ops[0], ""
}

// Batch reads a batch and returns the accepted operations and the positions of the others.
func (p *Parser) Batch(body []byte) (ops []twotier.Op, bads []int, quiet bool, wrong string) {
	if pr := p.d.batch(body); pr != nil {
		return nil, nil, false, pr.text()
	}
	for _, b := range p.d.bads {
		bads = append(bads, b.index)
	}
	return p.d.Ops, bads, p.d.quiet, ""
}

// WindowText returns the window of a limit as the request spelled it.
func (p *Parser) WindowText(op, check, limit int) string {
	return string(p.d.WindowText(op, check, limit))
}

// ParseWindow is request.ParseWindow.
func ParseWindow(text string) (ms int64, wrong string) { return request.ParseWindow([]byte(text)) }

// AppendString is appendString.
func AppendString(b []byte, s string) []byte { return appendString(b, s) }

// The bounds of sessions.
const (
	MaxSessions     = maxSessions
	MaxSessionBytes = maxSessionBytes
	MaxSessionReply = maxSessionReply
)

// Sessions returns the number of known sessions and of the bytes of answers kept for them.
func (s *Server) Sessions() (n, bytes int) { return s.sessions.Size() }

// Taken is the memory and the connections in use by clients.
type Taken struct {
	Conns   int
	Bytes   int64
	Waiting bool // a request waits for memory
}

// Taken returns the memory and the connections in use by clients.
func (s *Server) Taken() Taken {
	a := s.allowance
	t := Taken{Conns: a.conns.InUse()}
	for _, of := range []*account.Account{&a.reading, &a.answering} {
		t.Bytes += of.InUse()
		t.Waiting = t.Waiting || of.Waiting()
	}
	return t
}

// TraceID returns the ID of the trace that a request is part of.
func TraceID(h *fasthttp.RequestHeader) string { return traceOf(h).TraceID() }
