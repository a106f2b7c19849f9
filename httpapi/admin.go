package httpapi

import (
	"context"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/request"
)

// setMode changes how the whole cluster counts.
func (s *Server) setMode(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	text, p := decodeText(&x.Scanner, "mode")
	mode := cluster.Mode(text)
	if p == nil && mode != cluster.TwoTier && mode != cluster.Redis {
		p = wire.FieldProblem("mode", `want "two-tier" or "redis"`)
	}
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

// decodeText reads an object with one field, a text. It is empty if the field is missing.
func decodeText(d *wire.Scanner, field string) (text string, p *wire.Problem) {
	p = d.ReadObject("an object with "+field, func(name []byte) *wire.Problem {
		if string(name) != field || text != "" {
			return wire.FieldProblem(request.Clip(name), "want "+field+", once")
		}
		read, p := d.ReadText()
		if p != nil {
			return p.PrefixField(field)
		}
		text = string(read)
		return nil
	})
	return text, p
}
