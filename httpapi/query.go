package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
)

// clusterQuery reads the query of /v1/cluster: the optional parts of the answer.
func clusterQuery(ctx *fasthttp.RequestCtx) (owners, nodes bool, p *problem) {
	p = eachArg(ctx, func(name, value []byte) *problem {
		asked := &owners
		switch string(name) {
		case "owners":
		case "nodes":
			asked = &nodes
		default:
			return unknownArg(name, "cluster has owners and nodes")
		}
		if string(value) != "true" {
			return refused(string(name), "want true")
		}
		*asked = true
		return nil
	})
	return owners, nodes, p
}

// eachArg calls f for each parameter of the query until it returns a problem.
func eachArg(ctx *fasthttp.RequestCtx, f func(name, value []byte) *problem) *problem {
	args, i := ctx.QueryArgs(), 0
	for name, value := range args.All() {
		if p := f(name, value); p != nil {
			return p
		}
		if givenBefore(args, name, i) {
			return refused(clip(name), "given twice")
		}
		i++
	}
	return nil
}

// givenBefore reports whether one of the first n parameters has this name. There are few of them,
// because f stops at an unknown one.
func givenBefore(args *fasthttp.Args, name []byte, n int) bool {
	for earlier := range args.All() {
		if n == 0 {
			break
		}
		if string(earlier) == string(name) {
			return true
		}
		n--
	}
	return false
}

func unknownArg(name []byte, has string) *problem {
	return refused(clip(name), "unknown parameter; "+has)
}

// target is the common part of queries about one key.
type target struct {
	check twotier.Check
	at    int64
}

// arg reads one parameter into t if it is allowed. It leaves windows to the caller.
func (t *target) arg(name, value []byte, allowed fields, has string) (f fields, p *problem) {
	f = fieldOf(name)
	if f&allowed == 0 {
		return 0, unknownArg(name, has)
	}
	switch f {
	case fieldNS:
		if t.check.NS = value; !request.ReadableNS(value) {
			return f, refused("ns", request.WantNS)
		}
	case fieldKey:
		if t.check.Key = value; !request.ValidKey(value) {
			return f, refused("key", request.WantKey)
		}
	case fieldAt:
		v, end, fits := request.Digits(value, 0)
		if t.at = v; end != len(value) || v < 1 || !fits {
			return f, refused("at", "want unix milliseconds, at least 1")
		}
	}
	return f, nil
}

// countQuery reads the query of a count as operation 0.
func (d *decoder) countQuery(ctx *fasthttp.RequestCtx) *problem {
	d.reset(nil)
	d.BeginOp()
	var t target
	p := eachArg(ctx, func(name, value []byte) *problem {
		f, p := t.arg(name, value, fieldNS|fieldKey|fieldWindow|fieldAt,
			"count has key, ns, window and at")
		if p == nil && f == fieldWindow {
			if p = d.windowsOf(value); p != nil {
				p = p.in("window")
			}
		}
		return p
	})
	if p != nil {
		return p
	}
	t.check.N = 1
	if p := d.addCheck(&t.check, twotier.Count); p != nil {
		return p
	}
	d.EndOp(twotier.Op{Kind: twotier.Count, TS: t.at}, tagOne)
	d.Link()
	return nil
}

// seriesQuery reads the query of a series: a key and one window in milliseconds.
func seriesQuery(ctx *fasthttp.RequestCtx) (t target, window int64, p *problem) {
	p = eachArg(ctx, func(name, value []byte) *problem {
		f, p := t.arg(name, value, fieldNS|fieldKey|fieldWindow, "series has key, ns and window")
		if p == nil && f == fieldWindow {
			window, p = windowArg(value)
		}
		return p
	})
	switch {
	case p != nil:
	case t.check.Key == nil:
		p = refused("key", "missing; "+request.WantKey)
	case window == 0:
		p = refused("window", "missing; "+request.WantWindow)
	}
	return t, window, p
}

// listQuery is a query of the first n keys over a window.
type listQuery struct {
	n      int
	window int64
	text   string // the window as the query spells it
	by     string // count, refused or shadow
}

// topQuery reads the query of the busiest keys, or of the keys that refused most.
func topQuery(ctx *fasthttp.RequestCtx) (q listQuery, p *problem) {
	q = listQuery{n: request.DefaultTop, window: request.DefaultTopMS,
		text: request.DefaultTopWindow, by: "count"}
	p = eachArg(ctx, func(name, value []byte) (p *problem) {
		switch string(name) {
		case "n":
			v, end, fits := request.Digits(value, 0)
			if q.n = int(v); len(value) == 0 || end != len(value) || !fits || v < 1 ||
				v > request.MaxTop {
				p = refused("n", "want 1 to 1000")
			}
		case "window":
			q.window, p = windowArg(value)
			q.text = string(value)
		case "by":
			if q.by = string(value); !request.ValidBy(q.by) {
				p = refused("by", request.WantBy)
			}
		default:
			p = unknownArg(name, "top has n, window and by")
		}
		return p
	})
	return q, p
}

// windowArg reads a parameter that is one duration.
func windowArg(value []byte) (int64, *problem) {
	ms, wrong := request.ParseWindow(value)
	if wrong != "" {
		return 0, refused("window", wrong+`, got "`+clip(value)+`"`)
	}
	return ms, nil
}
