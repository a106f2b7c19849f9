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
	s.explainer = explain.Explainer{Service: s.service, Refusals: refusals,
		Values: s.opts.Distincter, Rules: s.opts.Rules}
	routes["/v1/explain"] = route{need: twotier.RoleRead, at: clientAPI, handler: s.explain}
}

// explain answers why a key, or a refusal with an id, is or was refused.
func (s *Server) explain(ctx *fasthttp.RequestCtx) *wire.Problem {
	q, p := parseExplainQuery(ctx)
	if p != nil {
		return p
	}
	q.Grant = grantOf(ctx)
	x := s.beginRequest(ctx)
	answer, f := s.explainer.Explain(x.context, q)
	p = wire.FromFailure(f)
	if p == nil {
		x.out = append(x.out, answer.JSON()...)
		x.setResponseBody(ctx)
	}
	s.finishRequest(x)
	return p
}
