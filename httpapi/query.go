package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/request"
)

// parseClusterQuery reads the query of /v1/cluster: the optional parts of the answer.
func parseClusterQuery(ctx *fasthttp.RequestCtx) (owners, nodes bool, p *wire.Problem) {
	p = eachArg(ctx, func(name, value []byte) *wire.Problem {
		asked := &owners
		switch string(name) {
		case "owners":
		case "nodes":
			asked = &nodes
		default:
			return unknownArgProblem(name, "cluster has owners and nodes")
		}
		if string(value) != "true" {
			return wire.FieldProblem(string(name), "want true")
		}
		*asked = true
		return nil
	})
	return owners, nodes, p
}

// eachArg calls f for each parameter of the query until it returns a problem.
func eachArg(ctx *fasthttp.RequestCtx, f func(name, value []byte) *wire.Problem) *wire.Problem {
	args, i := ctx.QueryArgs(), 0
	for name, value := range args.All() {
		if p := f(name, value); p != nil {
			return p
		}
		if hasArgBefore(args, name, i) {
			return wire.FieldProblem(request.Clip(name), "given twice")
		}
		i++
	}
	return nil
}

// hasArgBefore reports whether one of the first n parameters has this name. There are few of them,
// because f stops at an unknown one.
func hasArgBefore(args *fasthttp.Args, name []byte, n int) bool {
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

func unknownArgProblem(name []byte, has string) *wire.Problem {
	return wire.FieldProblem(request.Clip(name), "unknown parameter; "+has)
}

// target is the common part of queries about one key.
type target struct {
	check twotier.Check
	at    int64
}

// readArg reads one parameter into t. It leaves windows to the caller, and so does it "at", unless
// the query may have it.
func (t *target) readArg(name, value []byte, timed bool, has string) *wire.Problem {
	switch field := string(name); {
	case field == "ns":
		if t.check.NS = value; !request.ReadableNS(value) {
			return wire.FieldProblem("ns", request.WantNS)
		}
	case field == "key":
		if t.check.Key = value; !request.ValidKey(value) {
			return wire.FieldProblem("key", request.WantKey)
		}
	case field == "at" && timed:
		v, ok := request.ParseNumber(value)
		if t.at = v; !fields.At.Allows(v) || !ok {
			return wire.FieldProblem("at", fields.At.Want())
		}
	default:
		return unknownArgProblem(name, has)
	}
	return nil
}

// requireKey returns p or, if that is nil, the problem of a query without a key.
func (t *target) requireKey(p *wire.Problem) *wire.Problem {
	if p == nil && t.check.Key == nil {
		p = wire.FieldProblem("key", "missing; "+request.WantKey)
	}
	return p
}

// parseCountQuery reads the query of a count as operation 0.
func parseCountQuery(ctx *fasthttp.RequestCtx, d *codec.Decoder) *wire.Problem {
	t, p := parseWindowsQuery(ctx, d, "count has key, ns, window and at")
	if p != nil {
		return p
	}
	t.check.N = 1
	if p := d.AddCheck(&t.check, twotier.Count); p != nil {
		return p
	}
	d.EndOp(&twotier.Op{Kind: twotier.Count, TS: t.at}, codec.TagOne)
	d.Link()
	return nil
}

// parseDistinctQuery reads the query of a count of values as operation 0.
func parseDistinctQuery(ctx *fasthttp.RequestCtx, d *codec.Decoder) *wire.Problem {
	t, p := parseWindowsQuery(ctx, d, "distinct has key, ns, window and at")
	if p = t.requireKey(p); p != nil {
		return p
	}
	d.MoveWindows(0)
	if p := d.EndDistinctOp(&twotier.Op{TS: t.at}, &t.check); p != nil {
		return p
	}
	d.Link()
	return nil
}

// parseWindowsQuery begins an operation and reads a query about one key and several windows, which
// it adds as limits.
func parseWindowsQuery(ctx *fasthttp.RequestCtx, d *codec.Decoder, has string) (t target,
	p *wire.Problem) {
	d.Reset(nil)
	d.BeginOp()
	p = eachArg(ctx, func(name, value []byte) *wire.Problem {
		if string(name) != "window" {
			return t.readArg(name, value, true, has)
		}
		if p := d.ReadWindowList(value); p != nil {
			return p.PrefixField("window")
		}
		return nil
	})
	return t, p
}

// parseSeriesQuery reads the query of a series: a key and one window in milliseconds.
func parseSeriesQuery(ctx *fasthttp.RequestCtx) (t target, window int64, p *wire.Problem) {
	p = eachArg(ctx, func(name, value []byte) *wire.Problem {
		if string(name) != "window" {
			return t.readArg(name, value, false, "series has key, ns and window")
		}
		var p *wire.Problem
		window, p = parseWindowArg(value)
		return p
	})
	if p = t.requireKey(p); p == nil && window == 0 {
		p = wire.FieldProblem("window", "missing; "+request.WantWindow)
	}
	return t, window, p
}

// listQuery is a query of the first n keys over a window.
type listQuery struct {
	n      int
	window int64
	text   string // the window as the query spells it; empty if there is none
	by     string // see request.ValidTopOrder
	prefix string // of the keys
}

// parseTopQuery reads the query of the first keys in some order.
func parseTopQuery(ctx *fasthttp.RequestCtx) (q listQuery, p *wire.Problem) {
	q = listQuery{n: request.DefaultTop, by: "count"}
	p = eachArg(ctx, func(name, value []byte) (p *wire.Problem) {
		switch string(name) {
		case "n":
			q.n, p = parseLengthArg(value)
		case "window":
			q.window, p = parseWindowArg(value)
			q.text = string(value)
		case "by":
			if q.by = string(value); !request.ValidTopOrder(q.by) {
				p = wire.FieldProblem("by", request.WantBy)
			}
		case "prefix":
			if q.prefix = string(value); !request.ValidKey(value) {
				p = wire.FieldProblem("prefix", request.WantKey)
			}
		default:
			p = unknownArgProblem(name, "top has n, window, by and prefix")
		}
		return p
	})
	switch {
	case p != nil:
	case q.by == request.ByConcurrent && q.text != "":
		p = wire.FieldProblem("window", request.WantNoTopWindow)
	case q.by == request.ByConcurrent && q.prefix != "":
		p = wire.FieldProblem("prefix", "leave it out: concurrent lists the holds of all keys")
	case q.by != request.ByConcurrent && q.text == "":
		q.window, q.text = request.DefaultTopMS, request.DefaultTopWindow
	}
	return q, p
}

// parseLengthArg reads the parameter n, the length of a list.
func parseLengthArg(value []byte) (int, *wire.Problem) {
	n, ok := request.ParseNumber(value)
	if !ok || n < 1 || n > request.MaxTop {
		return 0, wire.FieldProblem("n", "want 1 to 1000")
	}
	return int(n), nil
}

// parseWindowArg reads a parameter that is one duration.
func parseWindowArg(value []byte) (int64, *wire.Problem) {
	ms, wrong := request.ParseWindow(value)
	if wrong != "" {
		return 0, wire.FieldProblem("window", wrong)
	}
	return ms, nil
}

// parseExplainQuery reads the query of /v1/explain.
func parseExplainQuery(ctx *fasthttp.RequestCtx) (*explain.Query, *wire.Problem) {
	q, t := &explain.Query{}, target{}
	p := eachArg(ctx, func(name, value []byte) *wire.Problem {
		switch string(name) {
		case "rule":
			q.Rule = string(value)
		case "id":
			if q.ID = string(value); q.ID == "" {
				return wire.FieldProblem("id", "want the id of a refusal")
			}
		default:
			return t.readArg(name, value, false, "explain has key, ns, rule and id")
		}
		return nil
	})
	q.NS, q.Key = t.check.NS, t.check.Key
	switch {
	case p != nil:
	case q.ID != "" && (q.Key != nil || q.NS != nil || q.Rule != ""):
		p = wire.FieldProblem("id", "want either id, or key with ns or rule")
	case q.ID == "" && q.Key == nil:
		p = wire.FieldProblem("key", "missing; "+request.WantKey+", or the id of a refusal")
	}
	return q, p
}

// parseRulesQuery reads the query of /v1/rules: the number of a version, and "limits" of it, or
// "history" or "warnings".
func parseRulesQuery(ctx *fasthttp.RequestCtx) (number int64, part string, p *wire.Problem) {
	p = eachArg(ctx, func(name, value []byte) *wire.Problem {
		switch string(name) {
		case "version":
			n, ok := request.ParseNumber(value)
			if number = n; n < 1 || !ok {
				return wire.FieldProblem("version", "want a number from 1 on")
			}
		case "limits", "history", "warnings":
			if string(value) != "true" {
				return wire.FieldProblem(string(name), "want true")
			}
			if part != "" {
				return wire.FieldProblem(string(name), "want one of limits, history and warnings")
			}
			part = string(name)
		default:
			return unknownArgProblem(name, "rules has version, limits, history and warnings")
		}
		return nil
	})
	if p == nil && part != "" && part != "limits" && number > 0 {
		p = wire.FieldProblem(part, "want either "+part+" or version, not both")
	}
	return number, part, p
}
