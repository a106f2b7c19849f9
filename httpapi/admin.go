package httpapi

import (
	"context"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
)

// adminMode changes how the whole cluster counts.
func (s *Server) adminMode(ctx *fasthttp.RequestCtx) *problem {
	if p := problemFrom(ask.AllowAll(grantOf(ctx))); p != nil {
		return p
	}
	if p := noQuery(ctx); p != nil {
		return p
	}
	x := s.begin(ctx)
	mode, p := x.modeBody(ctx.PostBody())
	if p == nil {
		// SetMode has its own timeout, which is longer than that of a request.
		if err := s.members.SetMode(context.Background(), mode); err == nil {
			x.out = append(appendString(append(x.out, `{"mode":`...), string(mode)), '}')
			x.answer(ctx)
		} else {
			p = s.problemOfQuery(err)
		}
	}
	s.finish(x)
	return p
}

// modeBody reads {"mode"}.
func (d *decoder) modeBody(body []byte) (mode cluster.Mode, p *problem) {
	d.reset(body)
	mode, p = d.modeMember()
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return "", d.malformedFirst(p)
	}
	return mode, nil
}

func (d *decoder) modeMember() (mode cluster.Mode, p *problem) {
	if p := d.enter('{', "an object with mode"); p != nil {
		return "", p
	}
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return "", p
		}
		if name == nil {
			break
		}
		if string(name) != "mode" || mode != "" {
			return "", refused(clip(name), "want mode, once")
		}
		text, p := d.text()
		if p != nil {
			return "", p.in("mode")
		}
		mode = cluster.Mode(text)
	}
	if mode != cluster.TwoTier && mode != cluster.Redis {
		return "", refused("mode", `want "two-tier" or "redis"`)
	}
	return mode, nil
}
