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
	for path, handler := range map[string]func(*fasthttp.RequestCtx) *wire.Problem{
		"/v1/settle": s.settle, "/v1/renew": s.renew,
	} {
		routes[path] = route{post: true, body: maxBatchBody, need: twotier.RoleCount,
			at: clientAPI, handler: handler}
	}
	routes["/v1/holds"] = route{need: twotier.RoleRead, at: clientAPI, handler: s.showHolds}
}

// showHolds answers how many holds of a key are open.
func (s *Server) showHolds(ctx *fasthttp.RequestCtx) *wire.Problem {
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
	x := s.beginRequest(ctx)
	open, err := s.service.OpenLeases(x.context, t.check.NS, t.check.Key)
	if err == nil {
		x.out = appendOpen(wire.AppendKey(x.out, t.check.Key), &open)
		x.setResponseBody(ctx)
	} else {
		p = s.problemOfQuery(err)
	}
	s.finishRequest(x)
	return p
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
func (s *Server) settle(ctx *fasthttp.RequestCtx) *wire.Problem {
	if p := refuseQuery(ctx); p != nil {
		return p
	}
	x := s.beginRequest(ctx)
	x.Reset(ctx.PostBody())
	q, p := decodeSettle(&x.Decoder)
	if p = x.EndBody(p); p == nil {
		answer, f := x.Settle(x.context, s.service, q)
		if p = wire.FromFailure(f); p == nil {
			x.out = appendSettled(x.out, answer)
			x.setResponseBody(ctx)
		}
	}
	s.finishRequest(x)
	return p
}

// renew moves the end of a hold.
func (s *Server) renew(ctx *fasthttp.RequestCtx) *wire.Problem {
	if p := refuseQuery(ctx); p != nil {
		return p
	}
	x := s.beginRequest(ctx)
	x.Reset(ctx.PostBody())
	id, lasts, p := decodeRenew(&x.Decoder)
	if p = x.EndBody(p); p == nil {
		answer, f := x.Renew(x.context, s.service, id, lasts)
		if p = wire.FromFailure(f); p == nil {
			x.out = append(append(x.out, `{"hold":"`...), answer.ID...)
			x.out = append(wire.AppendField(append(x.out, '"'), "until", answer.Until), '}')
			x.setResponseBody(ctx)
		}
	}
	s.finishRequest(x)
	return p
}

// decodeRenew reads {"hold","for"}.
func decodeRenew(d *codec.Decoder) (id string, lasts int64, p *wire.Problem) {
	p = d.ReadObject("an object with hold and for", func(name []byte) (p *wire.Problem) {
		switch field := string(name); {
		case field == "hold" && id == "":
			var text []byte
			text, p = d.ReadText()
			id = string(text)
		case field == "for" && lasts == 0:
			lasts, p = d.ReadDuration()
		case field == "hold" || field == "for":
			p = wire.FieldProblem("", "given twice")
		default:
			return wire.FieldProblem(request.Clip(name), "unknown field; renew has hold and for")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
	switch {
	case p != nil:
	case id == "":
		p = wire.FieldProblem("hold", "missing; want the id of a hold")
	case lasts == 0:
		p = wire.FieldProblem("for", "missing; "+request.WantWindow)
	}
	return id, lasts, p
}

// appendSettled appends the answer to a settlement.
func appendSettled(b []byte, a *ask.Settled) []byte {
	b = append(b, `{"settled":true`...)
	if a.Repeated {
		b = append(b, `,"repeated":true`...)
	}
	if a.Late {
		b = append(b, `,"late":true`...)
	}
	if len(a.Over) > 0 {
		b = append(b, `,"over":[`...)
		for _, name := range a.Over {
			b = wire.AppendString(wire.AppendComma(b), name)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// decodeSettle reads {"hold","n"} or {"hold","checks"}.
func decodeSettle(d *codec.Decoder) (*ask.Settling, *wire.Problem) {
	q := &ask.Settling{}
	var seenN, seenChecks bool
	p := d.ReadObject("an object with hold and n, or hold and checks",
		func(name []byte) (p *wire.Problem) {
			field := string(name)
			twice := field == "hold" && q.ID != "" || field == "n" && seenN ||
				field == "checks" && seenChecks
			switch {
			case twice:
				p = wire.FieldProblem("", "given twice")
			case field == "hold":
				var id []byte
				id, p = d.ReadText()
				q.ID = string(id)
			case field == "n":
				seenN = true
				q.All, p = d.ReadInteger()
			case field == "checks":
				seenChecks = true
				p = d.ReadList("a list of checks", request.MaxChecks, "checks",
					func(int) *wire.Problem { return readSettledCheck(d, q) })
			default:
				return wire.FieldProblem(request.Clip(name),
					"unknown field; settle has hold, n and checks")
			}
			if p != nil {
				return p.PrefixField(field)
			}
			return nil
		})
	switch {
	case p != nil:
		return nil, p
	case q.ID == "":
		return nil, wire.FieldProblem("hold", "missing; want the id of a hold")
	case seenN == seenChecks:
		return nil, wire.FieldProblem("n", "want either n, for every check, or checks")
	case seenChecks && len(q.Checks) == 0:
		return nil, wire.FieldProblem("checks", "want at least one check")
	}
	return q, nil
}

// readSettledCheck reads {"ns","key","n"}.
func readSettledCheck(d *codec.Decoder, q *ask.Settling) *wire.Problem {
	var c ask.SettledCheck
	seenN := false
	p := d.ReadObject("an object with key and n", func(name []byte) (p *wire.Problem) {
		switch field := string(name); {
		case field == "ns" && c.NS != nil, field == "key" && c.Key != nil, field == "n" && seenN:
			p = wire.FieldProblem("", "given twice")
		case field == "ns":
			c.NS, p = d.ReadText()
		case field == "key":
			c.Key, p = d.ReadText()
		case field == "n":
			seenN = true
			c.N, p = d.ReadInteger()
		default:
			return wire.FieldProblem(request.Clip(name), "unknown field; want ns, key and n")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
	switch {
	case p != nil:
		return p
	case c.Key == nil:
		return wire.FieldProblem("key", "missing; "+request.WantKey)
	case !seenN:
		return wire.FieldProblem("n", "missing; "+request.WantAcquireN)
	}
	q.Checks = append(q.Checks, c)
	return nil
}
