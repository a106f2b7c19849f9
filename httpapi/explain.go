package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/explain"
)

// addExplain adds the path of explanations, if the service finds refusals.
func (s *Server) addExplain(routes map[string]route) {
	refusals, ok := s.service.(explain.Refusals)
	if !ok {
		return
	}
	s.explainer = explain.Explainer{Service: s.service, Refusals: refusals, Rules: s.opts.Rules}
	routes["/v1/explain"] = route{need: twotier.RoleRead, at: clientAPI, answer: s.explain}
}

// explain answers why a key, or a refusal with an id, is or was refused. It takes memory for the
// answer first.
func (s *Server) explain(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	q, p := parseExplainQuery(ctx)
	if p != nil {
		return p
	}
	q.Grant = grantOf(ctx)
	plan, f := s.explainer.Plan(x.context, q)
	if f != nil {
		return wire.FromFailure(f)
	}
	if p := x.memory.ReserveExpected(plan.Bytes()); p != nil {
		return p
	}
	x.out, f = plan.Append(x.context, x.out, x.memory.MostForAnswer())
	return wire.FromFailure(f)
}
