package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/clientaddr"
	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/verdicts"
)

// headerRules is the header with the version of the rules that judged a forwarded request.
const headerRules = "Twotier-Rules-Version"

// forwardAuth decides for a proxy about a request that the proxy has received. It counts and
// answers 200, or counts nothing and answers 429 or the status in the query.
func (s *Server) forwardAuth(ctx *fasthttp.RequestCtx) *wire.Problem {
	x := s.beginRequestSized(ctx, 0)
	x.arrival.Endpoint = verdicts.ForwardAuth
	denied, p := s.parseForwardQuery(ctx, &x.Decoder)
	if p == nil {
		op, res := x.onlyOp()
		p = s.answerAcquire(ctx, x, s.service.Do(x.context, op, res))
	}
	if p == nil {
		x.setResponseBody(ctx)
		res := &x.Results()[0]
		setRateLimitFields(ctx, x, res)
		ctx.Response.Header.Set(headerRules, strconv.FormatInt(x.RulesVersion(), 10))
		if !res.Allowed {
			sendRefusal(ctx, denied, res.RetryAfter)
		}
	}
	s.finishRequest(x)
	return p
}

// isFromProxy reports whether a request with another server's name as its host may come from a
// proxy, which passes on the Host that it received or sends its own name for this server. It may,
// if it comes from a trusted proxy on another machine, or if the name has no dot: a page in a
// browser can't have either. A browser on the proxy's own machine shares the proxy's address and
// can send each of its headers.
func (s *Server) isFromProxy(ctx *fasthttp.RequestCtx) bool {
	if bytes.IndexByte(hostname.WithoutPort(ctx.Host()), '.') < 0 {
		return true
	}
	peer, err := netip.ParseAddrPort(ctx.RemoteAddr().String())
	if err != nil {
		return false
	}
	a := clientaddr.Plain(peer.Addr())
	return !a.IsLoopback() && s.clients.Trusts(a)
}

// keyedRule is a rule of a forwarded request with the key that it judges.
type keyedRule struct {
	rule *twotier.Rule
	key  []byte
}

// parseForwardQuery reads the query of a forward-auth as operation 0, and the status of a refusal.
func (s *Server) parseForwardQuery(ctx *fasthttp.RequestCtx, d *codec.Decoder) (denied int,
	p *wire.Problem) {
	d.Reset(nil)
	denied = fasthttp.StatusTooManyRequests
	var all []keyedRule
	var others []byte // the key of rules without their own
	keyed := 0        // number of rules that have a key
	for name, value := range ctx.QueryArgs().All() {
		switch string(name) {
		case "rule":
			all, p = appendRule(d, all, value)
		case "key":
			var key []byte
			switch key, p = s.clients.Key(ctx, value); {
			case keyed < len(all):
				keyed = setKeys(all, keyed, key)
			case len(all) == 0 && others == nil:
				others = key
			case p == nil:
				p = wire.FieldProblem("", "given twice for the same rules")
			}
		case "denied":
			denied, p = parseDeniedStatus(value)
		default:
			return 0, unknownArgProblem(name, "forward-auth has rule, key and denied")
		}
		if p != nil {
			return 0, p.PrefixField(string(name))
		}
	}
	if len(all) == 0 {
		return 0, wire.FieldProblem("rule", "missing; want the name of a rule")
	}
	if others == nil && keyed < len(all) {
		others = []byte(s.clients.AddressKey(ctx))
	}
	setKeys(all, keyed, others)
	return denied, addForwardedAcquire(d, all)
}

// appendRule appends a rule named in a query.
func appendRule(d *codec.Decoder, all []keyedRule, name []byte) ([]keyedRule, *wire.Problem) {
	if len(all) == ask.MaxRules {
		return all, wire.FieldProblem("", "want at most 16 rules")
	}
	r, p := d.ResolveRule(name)
	switch {
	case p != nil:
	case r.Concurrent > 0 && r.State == twotier.RuleOn:
		p = wire.FieldProblem("", "rule "+r.Name+" limits how many are open at the same time, "+
			"which needs a hold: name it in /v1/acquire or TT.ACQUIRE")
	case !r.JudgesEvents():
		p = wire.FieldProblem("", request.OnlyDistinctDetail(r.Name))
	}
	return append(all, keyedRule{rule: r}), p
}

// setKeys gives a key to all rules from index from on, and returns the number of rules.
func setKeys(all []keyedRule, from int, key []byte) int {
	for i := from; i < len(all); i++ {
		all[i].key = key
	}
	return len(all)
}

func parseDeniedStatus(value []byte) (int, *wire.Problem) {
	switch string(value) {
	case "429":
		return fasthttp.StatusTooManyRequests, nil
	case "403":
		return fasthttp.StatusForbidden, nil
	}
	return 0, wire.FieldProblem("", "want 429 or 403")
}

// addForwardedAcquire adds an acquire for all rules. Rules that judge the same key in the same
// namespace share a check, so that the request counts once.
func addForwardedAcquire(d *codec.Decoder, all []keyedRule) *wire.Problem {
	d.BeginOp()
	for len(all) > 0 {
		first, rest := all[0], all[:0]
		d.BeginCheck()
		for _, j := range all {
			if !bytes.Equal(j.key, first.key) || j.rule.Space() != first.rule.Space() {
				rest = append(rest, j)
			} else {
				d.AddRule(j.rule)
			}
		}
		if p := d.AddCheck(&twotier.Check{Key: first.key, N: 1}, twotier.Acquire); p != nil {
			return p
		}
		all = rest
	}
	if f := d.CheckHold(&twotier.Op{}); f != nil {
		return wire.FromFailure(f)
	}
	d.EndOp(&twotier.Op{Kind: twotier.Acquire}, codec.TagChecks)
	d.Link()
	return d.ReserveMemory(twotier.Acquire)
}

// RateLimiter answers requests of Envoy's rate limit service in their JSON form.
type RateLimiter interface {
	// JSON returns the answer to a RateLimitRequest, and whether it is OVER_LIMIT. A nil grant
	// allows everything.
	JSON(ctx context.Context, g *twotier.Grant, body []byte) (answer []byte, over bool, err error)
}

// rateLimitJSON answers 200 or 429 with a RateLimitResponse, as envoyproxy/ratelimit does.
func (s *Server) rateLimitJSON(ctx *fasthttp.RequestCtx) *wire.Problem {
	// The answer to a descriptor, with its limit and its share of the headers, is a few times as
	// long as the descriptor.
	if p := memoryOf(ctx).ReserveUpTo(8 * int64(len(ctx.PostBody()))); p != nil {
		return p
	}
	x := s.beginRequest(ctx)
	answer, over, err := s.opts.RateLimiter.JSON(x.context, x.Grant, ctx.PostBody())
	s.finishRequest(x)
	if f, ok := errors.AsType[*request.Failure](err); ok {
		return s.problemOfFailure(err, *f)
	}
	if err != nil {
		return s.problemOf(err, true)
	}
	if over {
		ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
	}
	return sendJSON(ctx, answer)
}
