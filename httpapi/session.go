package httpapi

import (
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/replay"
	"twotier.dev/twotier/internal/request"
)

// The headers of a session, see the package documentation.
const (
	headerSession  = "Twotier-Session"
	headerSequence = "Twotier-Sequence"
	headerProcess  = "Twotier-Process"
)

// headerTimeout is the sender's patience: how many milliseconds it waits for the answer.
const headerTimeout = "Twotier-Timeout"

// Bounds of the memory of sessions. If something is forgotten early, a client may not learn an
// outcome, but nothing is counted twice.
const (
	maxSessions     = 8192
	maxSessionBytes = 32 << 20
	maxSessionReply = 4 << 20
	sessionMemory   = 10 * time.Minute
	minSessionName  = 16
	maxSessionName  = 64
)

// sessions has the last request of each session and the answer to it.
type sessions struct {
	*replay.Memory[sessionName, *twotier.Grant, sessionAnswer]
	repeats atomic.Int64 // repetitions answered from memory
}

// sessionName is the name of a session, padded with zeros.
type sessionName [maxSessionName]byte

// sessionRequest is a request of a session. It belongs to the token it was sent with, or to nobody
// if there are no tokens.
type sessionRequest = replay.Request[sessionName, *twotier.Grant, sessionAnswer]

// sessionAnswer is a body or a problem.
type sessionAnswer struct {
	body    []byte
	problem *wire.Problem
}

// init sets the bound for answers: most bytes, but at most maxSessionBytes.
func (s *sessions) init(most int64) {
	s.Memory = replay.New[sessionName, *twotier.Grant,
		sessionAnswer](replay.Options[*twotier.Grant]{
		Sequences: maxSessions, Bytes: int(min(maxSessionBytes, most)), Answers: sessionMemory,
		Numbers: sessionMemory, FromOne: true, Continues: continues})
}

// continues reports whether the token next may continue a session that the token last has used, and
// read the answer to last's request.
func continues(last, next *twotier.Grant) bool {
	return last == nil && next == nil || last != nil && next != nil && next.Covers(last)
}

// inSession executes a request of a session, or repeats its answer.
func (s *Server) inSession(ctx *fasthttp.RequestCtx, name []byte,
	execute func(*fasthttp.RequestCtx) *wire.Problem) *wire.Problem {
	h := &ctx.Request.Header
	ctx.Response.Header.Set(headerProcess, s.process)
	if !validSession(name) {
		return wire.FieldProblem(headerSession, "want 16 to 64 letters, digits and hyphens")
	}
	seq, ok := request.ParseNumber(h.Peek(headerSequence))
	if seq < 1 || !ok {
		return wire.FieldProblem(headerSequence, "want a number from 1 on")
	}
	if to := h.Peek(headerProcess); len(to) > 0 && string(to) != s.process {
		return &wire.Problem{Kind: wire.Misdirected,
			Detail: "meant for another process, which may have carried it out; " +
				"this one did nothing"}
	}
	var key sessionName
	copy(key[:], name)
	request, verdict := s.sessions.Begin(key, uint64(seq), grantOf(ctx), time.Now())
	switch verdict {
	case replay.Fresh:
		return s.runFirst(ctx, request, execute)
	case replay.Repeated:
		return s.repeat(ctx, request)
	case replay.WrongSender:
		return &wire.Problem{Kind: wire.Sequence, Detail: "the session is another token's, or " +
			"this one granted more when it was used last; nothing was done now"}
	case replay.Full:
		return &wire.Problem{Kind: wire.Overload,
			Detail: "too many sessions have begun within ten minutes"}
	}
	return outOfSequenceProblem()
}

// runFirst executes a request for the first time and remembers the answer.
func (s *Server) runFirst(ctx *fasthttp.RequestCtx, request *sessionRequest,
	execute func(*fasthttp.RequestCtx) *wire.Problem) *wire.Problem {
	lost := &wire.Problem{Kind: wire.Unknown, Detail: "the answer is lost"} // if execute panics
	a := sessionAnswer{problem: lost}
	defer func() { s.sessions.Finish(request, a, len(a.body)) }()
	if p := execute(ctx); p != nil {
		a.problem = p
		return p
	}
	if answer := ctx.Response.Body(); len(answer) <= maxSessionReply {
		a = sessionAnswer{body: append([]byte(nil), answer...)}
		return nil
	}
	a.problem = &wire.Problem{Kind: wire.Unknown,
		Detail: "carried out, but the answer was too long to keep"}
	return nil
}

// repeat answers a repeated request like the first one, as soon as that has an answer.
func (s *Server) repeat(ctx *fasthttp.RequestCtx, request *sessionRequest) *wire.Problem {
	a, state := s.sessions.AwaitAnswer(request, s.opts.RequestTimeout)
	if state == replay.Forgotten {
		return outOfSequenceProblem()
	}
	s.sessions.repeats.Add(1)
	switch {
	case state == replay.UnderWay:
		return &wire.Problem{Kind: wire.Unknown, Detail: "the request is still being carried out"}
	case a.problem != nil:
		return a.problem
	}
	// Not BusyProblem: it would mean that nothing was done.
	if memoryOf(ctx).ReserveUpTo(int64(len(a.body))) != nil {
		return &wire.Problem{Kind: wire.Unknown,
			Detail: "carried out, but there is no memory now to repeat the answer"}
	}
	return sendJSON(ctx, a.body) // immutable, so all repetitions can share it
}

func validSession(name []byte) bool {
	if len(name) < minSessionName || len(name) > maxSessionName {
		return false
	}
	for _, c := range name {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return true
}

// outOfSequenceProblem refuses a request without doing anything.
func outOfSequenceProblem() *wire.Problem {
	return &wire.Problem{Kind: wire.Sequence,
		Detail: "unknown session, a number from before its last, or an answer that is not kept " +
			"any more; nothing was done now"}
}
