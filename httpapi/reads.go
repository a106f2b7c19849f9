package httpapi

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/request"
)

func (s *Server) count(ctx *fasthttp.RequestCtx) *problem {
	x := s.begin(ctx)
	p := x.countQuery(ctx)
	if p == nil {
		op, res := x.only()
		p = s.answerOnly(ctx, x, s.operations.Do(x.context, op, res))
	}
	s.finish(x)
	return p
}

func (s *Server) series(ctx *fasthttp.RequestCtx) *problem {
	t, window, p := seriesQuery(ctx)
	if p != nil {
		return p
	}
	if p := problemFrom(ask.Allow(grantOf(ctx), twotier.RoleRead, t.check.NS)); p != nil {
		return p
	}
	x := s.begin(ctx)
	bucket, points, err := s.keys.Series(x.context, t.check.NS, t.check.Key, window)
	if err == nil {
		x.out = appendSeries(x.out, t.check.Key, bucket, points)
		x.answer(ctx)
	} else {
		p = s.problemOfQuery(err)
	}
	s.finish(x)
	return p
}

func appendSeries(b, key []byte, bucketMS int64, points []twotier.Point) []byte {
	b = appendKey(b, key)
	b = appendField(b, "bucket_ms", bucketMS)
	b = append(b, `,"points":[`...)
	for i, p := range points {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendInt(b, p.Start, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, p.Count, 10)
		b = append(b, ']')
	}
	return append(b, "]}"...)
}

func (s *Server) top(ctx *fasthttp.RequestCtx) *problem {
	if p := problemFrom(ask.AllowAll(grantOf(ctx))); p != nil {
		return p
	}
	q, p := topQuery(ctx)
	if p != nil {
		return p
	}
	x := s.begin(ctx)
	keys, err := ask.Top(x.context, s.keys, q.by, q.n, q.window)
	if err == nil {
		x.out = appendTop(x.out, q.text, keys)
		x.answer(ctx)
	} else {
		p = s.problemOfQuery(err)
	}
	s.finish(x)
	return p
}

func appendTop(b []byte, window string, keys []twotier.KeyCount) []byte {
	b = appendString(append(b, `{"window":`...), window)
	b = append(b, `,"keys":[`...)
	for i := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"ns":`...), keys[i].NS)
		b = appendString(append(b, `,"key":`...), keys[i].Key)
		b = append(appendField(b, "count", keys[i].Count), '}')
	}
	return append(b, "]}"...)
}

func (s *Server) reset(ctx *fasthttp.RequestCtx) *problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	x := s.begin(ctx)
	c, p := x.resetBody(ctx.PostBody())
	if p == nil {
		p = problemFrom(ask.Allow(x.Grant, twotier.RoleAdmin, c.NS))
	}
	if p == nil {
		if err := s.resetter.Reset(x.context, c.NS, c.Key); err == nil {
			x.out = append(appendKey(x.out, c.Key), `,"reset":true}`...)
			x.answer(ctx)
		} else {
			p = s.problemOf(err, true)
		}
	}
	s.finish(x)
	return p
}

// resetBody reads {"ns","key"}.
func (d *decoder) resetBody(body []byte) (c twotier.Check, p *problem) {
	d.reset(body)
	c, p = d.nameOfKey()
	if p == nil {
		p = d.end()
	}
	if p != nil {
		return c, d.malformedFirst(p)
	}
	return c, nil
}

func (d *decoder) nameOfKey() (c twotier.Check, p *problem) {
	if p := d.enter('{', "an object with key"); p != nil {
		return c, p
	}
	seen := fields(0)
	for first := true; ; first = false {
		name, p := d.member(first)
		if p != nil {
			return c, p
		}
		if name == nil {
			break
		}
		f := fieldOf(name)
		if p := once(&seen, f, fieldNS|fieldKey, name, "reset has ns and key"); p != nil {
			return c, p
		}
		if p := d.checkValue(&c, f); p != nil {
			return c, p.in(string(name))
		}
	}
	if c.Key == nil {
		return c, refused("key", "missing; "+request.WantKey)
	}
	return c, nil
}

func (s *Server) cluster(ctx *fasthttp.RequestCtx) *problem {
	owners, nodes, p := clusterQuery(ctx)
	if p != nil {
		return p
	}
	view := s.members.Cluster()
	if owners {
		view = s.withOwners(view)
	}
	if view.Members == nil {
		view.Members = []cluster.Member{}
	}
	if nodes {
		s.members.Survey(context.Background(), &view) // Survey has its own timeout
	}
	body, err := json.Marshal(view)
	if err != nil { // a share that is not a finite number
		return s.problemOf(err, false)
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBody(body)
	return nil
}

// events answers with the events that the members have seen.
func (s *Server) events(ctx *fasthttp.RequestCtx) *problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	all := s.members.Events(context.Background()) // Events has its own timeout
	if all.Events == nil {
		all.Events = []cluster.Event{}
	}
	if all.Departed == nil {
		all.Departed = []cluster.Departed{}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return s.problemOf(err, false)
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(body)
	return nil
}

// withOwners adds the owners to a view. Owners are indexes into the view's members, so both must
// come from the same table.
func (s *Server) withOwners(view cluster.View) cluster.View {
	for range 8 {
		owners, seed := s.members.Owners()
		again := s.members.Cluster()
		if again.RingVersion == view.RingVersion {
			again.Owners, again.HashSeed = owners, seed
			return again
		}
		view = again
	}
	return view // it keeps changing: leave out the owners
}

// live answers as long as the process serves at all.
func (s *Server) live(ctx *fasthttp.RequestCtx) *problem {
	ctx.SetContentType("application/json")
	ctx.SetBodyString(`{"live":true}`)
	return nil
}

// ready answers 200 while the node can answer honestly, even if degraded, and 503 while it is
// closing or can't.
func (s *Server) ready(ctx *fasthttp.RequestCtx) *problem {
	degraded, err := s.health.Ready()
	if err != nil {
		return &problem{kind: kindUnavailable, detail: err.Error()}
	}
	if s.closing.Load() {
		return &problem{kind: kindUnavailable, detail: "closing"}
	}
	ctx.SetContentType("application/json")
	b := strconv.AppendBool([]byte(`{"ready":true,"degraded":`), len(degraded) > 0)
	for i, reason := range degraded {
		b = append(b, [...]string{`,"reasons":[`, ","}[min(i, 1)]...)
		b = appendString(b, []byte(reason))
	}
	if len(degraded) > 0 {
		b = append(b, ']')
	}
	c := s.health.Stats().Counter
	b = strconv.AppendInt(append(b, `,"unflushed_age_ms":`...), c.UnflushedAge.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"max_lag_ms":`...), c.MaxLag.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"waiting":`...), c.WaitingForRoom, 10)
	ctx.Response.AppendBody(append(b, '}'))
	return nil
}
