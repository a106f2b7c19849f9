package httpapi

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/request"
)

// Banner lists bans. A [Service] may be one.
type Banner interface {
	// Bans returns up to limit bans that nodes know of, of the given namespace and rule unless
	// these are empty. They may have ended: a [Server] checks them with its Service.
	Bans(ctx context.Context, ns, rule string, limit int) []twotier.Banned
}

// defaultBans is the number of bans in an answer if the query has none.
const defaultBans = 100

// banQuery is a query of bans. key is nil unless the query is about a single key.
type banQuery struct {
	ns, rule string
	key      []byte
	n        int
}

// parseBanQuery reads the query of /v1/bans.
func parseBanQuery(ctx *fasthttp.RequestCtx) (q banQuery, p *wire.Problem) {
	q.n = defaultBans
	p = eachArg(ctx, func(name, value []byte) (p *wire.Problem) {
		switch string(name) {
		case "ns":
			if q.ns = string(value); !request.ValidNS(value) {
				return wire.FieldProblem("ns", request.WantNS)
			}
		case "rule":
			q.rule = string(value)
		case "key":
			if q.key = value; !request.ValidKey(value) {
				return wire.FieldProblem("key", request.WantKey)
			}
		case "n":
			q.n, p = parseLengthArg(value)
		default:
			p = unknownArgProblem(name, "bans has ns, rule, key and n")
		}
		return p
	})
	if p == nil && q.key != nil && q.rule == "" {
		p = wire.FieldProblem("rule", "missing; want the rule that may ban the key")
	}
	return q, p
}

// listBans answers with the active bans: all that nodes know of, or the ban of one key.
func (s *Server) listBans(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	q, p := parseBanQuery(ctx)
	if p != nil {
		return p
	}
	if q.ns == "" && q.rule == "" {
		if p := wire.FromFailure(ask.CheckGrantAll(grantOf(ctx))); p != nil {
			return p
		}
	}
	if p := memoryOf(ctx).ReserveKeys(q.n); p != nil {
		return p
	}
	set, f := x.ResolveRules()
	if f != nil {
		return wire.FromFailure(f)
	}
	return s.appendFoundBans(x, set, &q, grantOf(ctx))
}

// appendFoundBans appends the answer to a query.
func (s *Server) appendFoundBans(x *requestState, set *twotier.RuleSet, q *banQuery,
	grant *twotier.Grant) *wire.Problem {
	if q.rule != "" {
		r, p := x.ResolveRule([]byte(q.rule))
		if p == nil && q.ns != "" && q.ns != r.Space() {
			p = wire.FieldProblem("ns", "rule "+r.Name+" counts in namespace "+r.Space())
		}
		if p != nil {
			return p.PrefixField("rule")
		}
		q.ns = r.Space()
	}
	if q.ns != "" {
		if p := wire.FromFailure(ask.CheckGrant(grant, twotier.RoleRead, []byte(q.ns))); p != nil {
			return p
		}
	}
	var known []twotier.Banned
	if q.key != nil {
		known = []twotier.Banned{{NS: q.ns, Rule: q.rule, Key: string(q.key)}}
	} else if banner, ok := s.service.(Banner); ok {
		known = banner.Bans(x.context, q.ns, q.rule, q.n)
	}
	held, err := s.activeBans(x.context, set, known)
	if err != nil {
		return s.problemOf(err, false)
	}
	b := append(x.out, `{"bans":[`...)
	for i := range held {
		b = wire.AppendString(append(wire.AppendComma(b), `{"ns":`...), held[i].NS)
		b = wire.AppendString(append(b, `,"rule":`...), held[i].Rule)
		b = wire.AppendString(append(b, `,"key":`...), held[i].Key)
		b = wire.AppendField(b, "until", held[i].until)
		b = append(wire.AppendField(b, "retry_after_ms", held[i].left), '}')
	}
	x.out = append(wire.AppendField(append(b, ']'), "rules_version", set.Version()), '}')
	return nil
}

// activeBan is an active ban, with its end and the milliseconds left.
type activeBan struct {
	twotier.Banned
	until, left int64
}

// activeBans checks known bans against the rules in force and returns the active ones, the last to
// end first.
func (s *Server) activeBans(ctx context.Context, set *twotier.RuleSet,
	known []twotier.Banned) ([]activeBan, error) {
	var ops []twotier.Op
	var of []twotier.Banned
	for _, b := range known {
		if r := set.Find([]byte(b.Rule)); r != nil && r.Bans() && r.Space() == b.NS {
			ops = append(ops, companions.StatusOp([]byte(b.NS), b.Rule, []byte(b.Key), r.Ban))
			of = append(of, b)
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	res := make([]twotier.Result, len(ops))
	s.service.DoAll(ctx, ops, res)
	var list []activeBan
	for i := range res {
		switch {
		case res[i].Err != nil:
			return nil, res[i].Err
		case !res[i].Allowed && len(res[i].Checks) == 1:
			end := companions.EndOf(&res[i].Checks[0])
			list = append(list, activeBan{of[i], end, res[i].RetryAfter})
		}
	}
	slices.SortStableFunc(list, func(a, b activeBan) int { return cmp.Compare(b.left, a.left) })
	return list, nil
}

// unban lifts the ban of a key under a rule.
func (s *Server) unban(ctx *fasthttp.RequestCtx, x *requestState) *wire.Problem {
	x.Reset(ctx.PostBody())
	r, key, p := decodeUnban(&x.Decoder)
	p = x.EndBody(p)
	if p == nil {
		p = wire.FromFailure(ask.CheckGrant(x.Grant, twotier.RoleAdmin, []byte(r.Space())))
	}
	if p != nil {
		return p
	}
	return s.liftBan(x, r, key)
}

// liftBan ends a ban and appends the answer.
func (s *Server) liftBan(x *requestState, r *twotier.Rule, key []byte) *wire.Problem {
	set, _ := x.ResolveRules() // r is one of them
	held, err := s.activeBans(x.context, set, []twotier.Banned{{NS: r.Space(), Rule: r.Name,
		Key: string(key)}})
	if err == nil {
		ns, name := twotier.BanKey([]byte(r.Space()), r.Name, key)
		err = s.service.Reset(x.context, ns, name)
	}
	if err != nil {
		return s.problemOf(err, true)
	}
	b := wire.AppendString(append(x.out, `{"rule":`...), r.Name)
	b = wire.AppendString(append(b, `,"key":`...), key)
	x.out = append(strconv.AppendBool(append(b, `,"lifted":`...), len(held) > 0), '}')
	return nil
}

// decodeUnban reads {"rule","key"}.
func decodeUnban(d *codec.Decoder) (r *twotier.Rule, key []byte, p *wire.Problem) {
	p = d.ReadObject("an object with rule and key", func(name []byte) (p *wire.Problem) {
		var text []byte
		switch field := string(name); {
		case field == "rule" && r == nil:
			if text, p = d.ReadText(); p == nil {
				r, p = d.ResolveRule(text)
			}
		case field == "key" && key == nil:
			if key, p = d.ReadText(); p == nil && !request.ValidKey(key) {
				p = wire.FieldProblem("", request.WantKey)
			}
		case field == "rule" || field == "key":
			p = wire.FieldProblem("", "given twice")
		default:
			return wire.FieldProblem(request.Clip(name), "unknown field; unban has rule and key")
		}
		if p != nil {
			return p.PrefixField(string(name))
		}
		return nil
	})
	switch {
	case p != nil:
	case r == nil:
		p = wire.FieldProblem("rule", "missing; want the rule that bans the key")
	case key == nil:
		p = wire.FieldProblem("key", "missing; "+request.WantKey)
	}
	return r, key, p
}
