package httpapi

import (
	"context"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/request"
)

// setMode changes how the whole cluster counts.
func (s *Server) setMode(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	mode, p := decodeMode(&x.Decoder)
	if p = x.EndBody(p); p != nil {
		return p
	}
	// SetMode has its own timeout, which is longer than that of a request.
	if err := s.service.SetMode(context.Background(), mode); err != nil {
		return s.problemOfQuery(err)
	}
	x.out = append(wire.AppendString(append(x.out, `{"mode":`...), string(mode)), '}')
	return nil
}

// decodeMode reads {"mode"}.
func decodeMode(d *codec.Decoder) (mode cluster.Mode, p *wire.Problem) {
	p = d.ReadObject("an object with mode", func(name []byte) *wire.Problem {
		if string(name) != "mode" || mode != "" {
			return wire.FieldProblem(request.Clip(name), "want mode, once")
		}
		text, p := d.ReadText()
		if p != nil {
			return p.PrefixField("mode")
		}
		mode = cluster.Mode(text)
		return nil
	})
	if p == nil && mode != cluster.TwoTier && mode != cluster.Redis {
		p = wire.FieldProblem("mode", `want "two-tier" or "redis"`)
	}
	return mode, p
}
