package httpapi

import (
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
)

func (s *Server) add(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	if p := x.DecodeSingle(ctx.PostBody(), twotier.Add); p != nil {
		return p
	}
	return s.runOnlyOp(x)
}

// acquire answers 200 whatever the decision, unless the query has deny=429.
func (s *Server) acquire(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	deny429, p := parseDenyQuery(ctx)
	if p != nil {
		return p
	}
	if p = x.DecodeSingle(ctx.PostBody(), twotier.Acquire); p == nil {
		op, res := x.onlyOp()
		res.Err = s.service.Do(x.context, op, res)
		if x.HasReleases() {
			x.AwaitDeadlines(x.context, x.Results())
		}
		p = s.answerAcquire(ctx, x, res.Err)
	}
	if p == nil && deny429 {
		res := &x.Results()[0]
		setRateLimitFields(ctx, x, res)
		refuseDenied(ctx, res)
	}
	return p
}

// refuseDenied answers a refusal with status 429.
func refuseDenied(ctx *fasthttp.RequestCtx, res *twotier.Result) {
	if !res.Allowed {
		sendRefusal(ctx, fasthttp.StatusTooManyRequests, res.RetryAfter)
	}
}

// addDistinct adds different values to a key. It is like acquire.
func (s *Server) addDistinct(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	deny429, p := parseDenyQuery(ctx)
	if p == nil {
		p = x.DecodeDistinct(ctx.PostBody())
	}
	if p != nil {
		return p
	}
	op, res := x.onlyOp()
	res.Err = s.service.Do(x.context, op, res)
	x.FailUnjudged()
	if p = s.answerAcquire(ctx, x, res.Err); p == nil && deny429 {
		refuseDenied(ctx, res)
	}
	return p
}

// onlyOp returns the only operation of x, and an empty result for it.
func (x *requestState) onlyOp() (*twotier.Op, *twotier.Result) {
	if x.traced.of != nil {
		x.annotateSpan(1)
	}
	return &x.Ops[0], &x.EmptyResults()[0]
}

// answerAcquire counts the verdicts on the only operation of x, which was executed with this error,
// and answers it.
func (s *Server) answerAcquire(ctx *fasthttp.RequestCtx, x *requestState,
	err error) *wire.Problem {
	if err == nil {
		x.CountVerdicts(s.opts.Verdicts, &x.arrival)
		if !x.Results()[0].Allowed {
			setRefusalField(ctx, x.RefusalOf(0))
		}
	}
	return s.answerOnlyOp(x, err)
}

// runOnlyOp executes and answers the only operation of x.
func (s *Server) runOnlyOp(x *requestState) *wire.Problem {
	op, res := x.onlyOp()
	return s.answerOnlyOp(x, s.service.Do(x.context, op, res))
}

// answerOnlyOp answers the only operation of x, which was executed with this error.
func (s *Server) answerOnlyOp(x *requestState, err error) *wire.Problem {
	if err != nil {
		return s.problemOfOp(err, x, 0)
	}
	x.out = x.encoder().AppendAnswer(x.out, 0, &x.Results()[0])
	return nil
}

// runBatchOnce executes many operations, and only once if they are part of a session.
func (s *Server) runBatchOnce(ctx *fasthttp.RequestCtx) *wire.Problem {
	if name := ctx.Request.Header.Peek(headerSession); len(name) > 0 {
		return s.inSession(ctx, name, s.runBatch)
	}
	return s.runBatch(ctx)
}

// runBatch executes the operations of a batch. The batch is read completely first: if any part of
// it is malformed, nothing is executed.
func (s *Server) runBatch(ctx *fasthttp.RequestCtx) *wire.Problem {
	x := s.beginRequest(ctx)
	body := ctx.PostBody()
	p := x.memory.ReserveExpected(int64(len(body)) * expected)
	if p == nil {
		p = x.DecodeBatch(body)
		x.memory.ReturnUnused()
	}
	if p == nil {
		if x.traced.of != nil {
			x.annotateSpan(len(x.Ops))
		}
		results := x.EmptyResults()
		if len(x.Ops) > 0 {
			s.service.DoAll(x.context, x.Ops, results)
		}
		if x.HasReleases() {
			x.AwaitDeadlines(x.context, results)
		}
		if x.HasValues() {
			x.FailUnjudged()
		}
		x.CountVerdicts(s.opts.Verdicts, &x.arrival)
		x.out = slices.Grow(x.out, x.Answers)
		if x.Quiet {
			s.appendBatchTotals(x, results)
		} else {
			s.appendResults(x, results)
		}
		x.setResponseBody(ctx)
	}
	s.finishRequest(x)
	return p
}

// appendResults appends the answers and errors of a batch in the order of its operations.
func (s *Server) appendResults(x *requestState, results []twotier.Result) {
	b := append(x.out, `{"results":[`...)
	all, total := x.Merge()
	for range total {
		b = wire.AppendComma(b)
		switch p, op := all.Next(); {
		case p != nil:
			b = appendError(b, p)
		case results[op].Err != nil:
			b = appendError(b, s.problemOfOp(results[op].Err, x, op))
		default:
			b = x.encoder().AppendAnswer(b, op, &results[op])
		}
	}
	x.out = append(b, "]}"...)
}

func appendError(b []byte, p *wire.Problem) []byte {
	b = append(b, `{"error":`...)
	b = p.AppendJSON(b)
	return append(b, '}')
}

// appendBatchTotals appends the totals and errors of a batch.
func (s *Server) appendBatchTotals(x *requestState, results []twotier.Result) {
	var added, allowed, refused int64
	all, total := x.Merge()
	b := append(x.out, `{"ops":`...)
	b = strconv.AppendInt(b, int64(total), 10)
	b = append(b, `,"errors":[`...)
	for i := range total {
		p, op := all.Next()
		switch {
		case p != nil:
		case results[op].Err != nil:
			p = s.problemOfOp(results[op].Err, x, op)
		case x.Ops[op].Kind == twotier.Add:
			added++
		case x.Ops[op].Kind == twotier.Acquire && results[op].Allowed:
			allowed++
		case x.Ops[op].Kind == twotier.Acquire:
			refused++
		}
		if p != nil {
			b = append(wire.AppendComma(b), `{"index":`...)
			b = strconv.AppendInt(b, int64(i), 10)
			b = append(b, `,"error":`...)
			b = append(p.AppendJSON(b), '}')
		}
	}
	b = append(b, ']')
	b = wire.AppendField(b, "added", added)
	b = wire.AppendField(b, "allowed", allowed)
	b = wire.AppendField(b, "refused", refused)
	if x.HasNamedRules() {
		b = wire.AppendField(b, "rules_version", x.RulesVersion())
	}
	x.out = append(b, '}')
}

// refuseQuery refuses a query on a call that has no parameters.
func refuseQuery(ctx *fasthttp.RequestCtx) *wire.Problem {
	if len(ctx.URI().QueryString()) == 0 {
		return nil
	}
	return eachArg(ctx, func(name, _ []byte) *wire.Problem {
		return unknownArgProblem(name, "this call has none")
	})
}

// parseDenyQuery reads the query of an acquire.
func parseDenyQuery(ctx *fasthttp.RequestCtx) (deny429 bool, p *wire.Problem) {
	if len(ctx.URI().QueryString()) == 0 {
		return false, nil
	}
	p = eachArg(ctx, func(name, value []byte) *wire.Problem {
		switch {
		case string(name) != "deny":
			return unknownArgProblem(name, "acquire has deny")
		case string(value) != "429":
			return wire.FieldProblem("deny", "want 429")
		}
		deny429 = true
		return nil
	})
	return deny429, p
}

// addHolds adds the paths of holds.
func (s *Server) addHolds(routes map[string]route) {
	for path, answer := range map[string]answerer{"/v1/settle": s.settle, "/v1/renew": s.renew} {
		routes[path] = route{post: true, body: maxBatchBody, need: twotier.RoleCount,
			bare: true, at: clientAPI, answer: answer}
	}
	routes["/v1/holds"] = route{need: twotier.RoleRead, at: clientAPI, answer: s.showHolds}
}

// showHolds answers how many holds of a key are open.
func (s *Server) showHolds(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	var t target
	p := eachArg(ctx, func(name, value []byte) *wire.Problem {
		return t.readArg(name, value, false, "holds has key and ns")
	})
	if p = t.requireKey(p); p != nil {
		return p
	}
	if p := wire.FromFailure(ask.CheckGrant(grantOf(ctx), twotier.RoleRead, t.check.NS)); p != nil {
		return p
	}
	open, err := s.service.OpenLeases(x.context, t.check.NS, t.check.Key)
	if err != nil {
		return s.problemOfQuery(err)
	}
	x.out = appendOpen(wire.AppendKey(x.out, t.check.Key), &open)
	return nil
}

// appendOpen appends the rest of an object on the open holds of a key.
func appendOpen(b []byte, open *twotier.OpenLeases) []byte {
	b = wire.AppendField(b, "open", open.Open)
	if open.NextEnd > 0 {
		b = wire.AppendField(b, "next_end_ms", open.NextEnd)
	}
	b = append(append(append(b, `,"source":"`...), open.Source...), `","degraded":`...)
	return append(strconv.AppendBool(b, open.Degraded), '}')
}

// settle settles a hold.
func (s *Server) settle(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	q, p := codec.DecodeSettle(&x.Decoder)
	if p = x.EndBody(p); p != nil {
		return p
	}
	answer, f := x.Settle(x.context, s.service, q)
	if f != nil {
		return wire.FromFailure(f)
	}
	x.out = codec.AppendSettled(x.out, answer)
	return nil
}

// renew moves the end of a hold.
func (s *Server) renew(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	id, lasts, p := codec.DecodeRenew(&x.Decoder)
	if p = x.EndBody(p); p != nil {
		return p
	}
	answer, f := x.Renew(x.context, s.service, id, lasts)
	if f != nil {
		return wire.FromFailure(f)
	}
	x.out = append(append(x.out, `{"hold":"`...), answer.ID...)
	x.out = append(wire.AppendField(append(x.out, '"'), "until", answer.Until), '}')
	return nil
}
