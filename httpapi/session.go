package httpapi

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/token"
)

// The headers of a session, see the package documentation.
const (
	headerSession  = "Twotier-Session"
	headerSequence = "Twotier-Sequence"
	headerProcess  = "Twotier-Process"
)

// Bounds of what is remembered for sessions. What is forgotten too early costs a client certainty,
// never a count.
const (
	maxSessions     = 8192
	maxSessionBytes = 32 << 20 // at the most, see sessions.most
	maxSessionReply = 4 << 20
	sessionMemory   = 10 * time.Minute
	minSessionName  = 16
	maxSessionName  = 64
)

// sessions are the last request of each session and the answer to it.
type sessions struct {
	most    int          // bytes of answers that are kept
	repeats atomic.Int64 // that were answered from memory

	mu    sync.Mutex
	named map[string]*list.Element // of *session
	order list.List                // the one used last is in front
	bytes int
	begun begun // those that were forgotten, too
}

// session is one request of a session. The next request has another one in its place.
type session struct {
	name string
	seq  int64
	from *token.Grant // whose request it is, nil where there are no tokens
	used time.Time
	done chan struct{} // closed once there is an answer
	kept int           // bytes of the answer that are accounted for; of sessions, under its lock

	// The answer: a body or a problem.
	body    []byte
	problem *problem
}

// inSession carries out a request that has a session, or repeats what came of it.
func (s *Server) inSession(ctx *fasthttp.RequestCtx, name []byte,
	carryOut func(*fasthttp.RequestCtx) *problem) *problem {
	h := &ctx.Request.Header
	ctx.Response.Header.Set(headerProcess, s.process)
	if !validSession(name) {
		return refused(headerSession, "want 16 to 64 letters, digits and hyphens")
	}
	text := h.Peek(headerSequence)
	seq, end, fits := digits(text, 0)
	if seq < 1 || end != len(text) || !fits {
		return refused(headerSequence, "want a number from 1 on")
	}
	if to := h.Peek(headerProcess); len(to) > 0 && string(to) != s.process {
		return &problem{kind: kindMisdirected,
			detail: "meant for another process, which may have carried it out; " +
				"this one did nothing"}
	}
	state, fresh, p := s.sessions.enter(name, seq, grantOf(ctx), time.Now())
	switch {
	case p != nil:
		return p
	case fresh:
		return s.inTurn(ctx, state, carryOut)
	}
	return s.again(ctx, state)
}

// inTurn carries out a request for the first time and remembers the answer.
func (s *Server) inTurn(ctx *fasthttp.RequestCtx, state *session,
	carryOut func(*fasthttp.RequestCtx) *problem) *problem {
	p := &problem{kind: kindUnknown, detail: "the answer is lost"} // by a panic
	var body []byte
	defer func() {
		state.body, state.problem = body, p
		s.sessions.keep(state)
		close(state.done)
	}()
	if q := carryOut(ctx); q != nil {
		p = q
		return p
	}
	if answer := ctx.Response.Body(); len(answer) <= maxSessionReply {
		body, p = append([]byte(nil), answer...), nil
		return nil
	}
	p = &problem{kind: kindUnknown, detail: "carried out, but the answer was too long to keep"}
	return nil
}

// again answers a repeated request the way the first was, as soon as that is known.
func (s *Server) again(ctx *fasthttp.RequestCtx, state *session) *problem {
	s.sessions.repeats.Add(1)
	timer := time.NewTimer(s.opts.RequestTimeout)
	defer timer.Stop()
	select {
	case <-state.done:
	case <-timer.C:
		return &problem{kind: kindUnknown, detail: "the request is still being carried out"}
	}
	if state.problem != nil {
		return state.problem
	}
	// It is not told to be busy: that would say that nothing was done.
	if holdOf(ctx).cover(int64(len(state.body))) != nil {
		return &problem{kind: kindUnknown,
			detail: "carried out, but there is no memory now to repeat the answer"}
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(state.body) // never changes, so that any number of repetitions share it
	return nil
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

// outOfSequence and tooManyBegun refuse a request without doing anything.
func outOfSequence() *problem {
	return &problem{kind: kindSequence,
		detail: "unknown session, or a number from before its last; nothing was done now"}
}

func tooManyBegun() *problem {
	return &problem{kind: kindOverload, detail: "too many sessions have begun within ten minutes"}
}

func anothersSession() *problem {
	return &problem{kind: kindSequence, detail: "the session is another token's, or this one " +
		"granted more when it was used last; nothing was done now"}
}

// belongsTo reports whether who presents a token may be told what was answered, and may go on.
func (s *session) belongsTo(g *token.Grant) bool {
	return s.from == nil && g == nil || s.from != nil && g != nil && g.Covers(s.from)
}

// enter finds the request of that number. If it is new, fresh is true, and the caller carries it
// out and closes done. There is a problem if nothing may be done: the number is older than the
// last, the session is another's, or it is unknown and does not begin here. A session that was
// forgotten can't begin anew, as a request of it that was carried out may be on its way again.
func (s *sessions) enter(name []byte, seq int64, from *token.Grant,
	now time.Time) (state *session, fresh bool, p *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(now)
	at := s.named[string(name)]
	switch {
	case at == nil && seq != 1:
		return nil, false, outOfSequence()
	case at == nil:
		if isNew, room := s.begun.add(name, now); !isNew {
			return nil, false, outOfSequence()
		} else if !room {
			return nil, false, tooManyBegun()
		}
		state = &session{name: string(name)}
		at = s.order.PushFront(state)
		s.named[state.name] = at
	default:
		state = at.Value.(*session)
		if !state.belongsTo(from) {
			return nil, false, anothersSession()
		}
		state.used = now
		s.order.MoveToFront(at)
		if seq <= state.seq {
			if seq < state.seq {
				return nil, false, outOfSequence()
			}
			return state, false, nil
		}
		s.bytes -= state.kept
		state.kept = 0
		state = &session{name: state.name}
		at.Value = state
	}
	state.seq, state.from, state.used, state.done = seq, from, now, make(chan struct{})
	return state, true, nil
}

// keep accounts for the answer of a request, unless there has been another since.
func (s *sessions) keep(state *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.named[state.name]; at != nil && at.Value == any(state) {
		state.kept = len(state.body)
		s.bytes += state.kept
	}
}

// forgetLocked drops the sessions that were not used for long, and those used least lately while
// there are too many.
func (s *sessions) forgetLocked(now time.Time) {
	for at := s.order.Back(); at != nil; at = s.order.Back() {
		state := at.Value.(*session)
		if now.Sub(state.used) < sessionMemory && len(s.named) < maxSessions && s.bytes <= s.most {
			return
		}
		s.order.Remove(at)
		delete(s.named, state.name)
		s.bytes -= state.kept
	}
}

// len returns how many sessions are known.
func (s *sessions) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.named)
}
