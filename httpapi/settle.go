package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
)

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
	switch {
	case p != nil:
		return p
	case t.check.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
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
