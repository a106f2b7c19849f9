package httpapi

import (
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/internal/listener"
	"twotier.dev/twotier/internal/verdicts"
)

// Handle answers a request as the first endpoint does, with unlimited memory. It first releases the
// memory of the previous request with ctx.
func (s *Server) Handle(ctx *fasthttp.RequestCtx) {
	c, ok := ctx.Conn().(served)
	if !ok {
		budget := memory.NewBudget(listener.Limits{MaxMemory: 1 << 40, MaxConns: 1,
			MaxConnsPerAddress: 1})
		client, _ := budget.Conns.Enter(nil)
		c = served{&conn{endpoint: s.endpoints[0],
			memory: memory.NewRequest(budget, client, time.Minute)}}
		from := ctx.RemoteAddr()
		ctx.Init2(c, silent{}, false)
		ctx.SetRemoteAddr(from)
	}
	c.memory.Release()
	s.handle(ctx)
}

// Awake returns the memory of connections that are not parked.
func (s *Server) Awake() int64 { return s.budget.Conns.Accounts[memory.Awake].InUse() }

// Reading returns the memory that requests take while they are read and answered.
func (s *Server) Reading() int64 { return s.budget.Conns.Accounts[memory.Reading].InUse() }

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
	a := s.budget
	t := Taken{Conns: a.Conns.InUse()}
	for _, of := range a.Conns.Accounts[:memory.Awake] {
		t.Bytes += of.InUse()
		t.Waiting = t.Waiting || of.HasWaiters()
	}
	return t
}

// TraceID returns the ID of the trace that a request is part of.
func TraceID(h *fasthttp.RequestHeader) string { return traceOf(h).TraceID() }

// IdleArrival returns the arrival that the memory for the next request still refers to.
func (s *Server) IdleArrival() verdicts.Arrival { return s.states.get(0).arrival }
