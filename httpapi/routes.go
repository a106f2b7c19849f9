package httpapi

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/peerhttp"
)

// Bounds of a body, in bytes: of one operation, and of a batch or of several descriptors.
const (
	maxBody      = 64 << 10
	maxBatchBody = 1 << 20
)

// route describes one path.
type route struct {
	post    bool         // POST, otherwise GET and HEAD
	any     bool         // any method, for any host; a body is not read
	binary  bool         // the body is not JSON
	yaml    bool         // the body may be YAML
	put     *route       // the route of PUT, read as a POST is; nil if there is no PUT
	get     *route       // the route of GET at a path with a POST; nil if there is no GET
	need    twotier.Role // one of these roles if there are tokens; 0: anyone
	guarded bool         // needs a token even if there are no Tokens
	all     bool         // a token needs a grant for all namespaces
	bare    bool         // takes no query
	instead string       // another way to the same end, for nodes that accept no token
	at      apiSet       // where it is served
	body    int          // maximum size of a body
	// admit checks the sender of a request before its body is read; nil admits everyone.
	admit   func(ctx *fasthttp.RequestCtx) *wire.Problem
	handler func(ctx *fasthttp.RequestCtx) *wire.Problem
	answer  answerer // takes the place of handler
}

// ruleFile is the way to change rules without a token.
const ruleFile = "; or change the file of --rules, which is read again"

// routeTable returns all paths. There are no patterns: keys are in bodies and queries.
func (s *Server) routeTable() map[string]route {
	routes := map[string]route{
		"/v1/add": {post: true, body: maxBody, need: twotier.RoleCount, bare: true,
			at: clientAPI, answer: s.add},
		"/v1/acquire": {post: true, body: maxBody, need: twotier.RoleCount, at: clientAPI,
			answer: s.acquire},
		"/v1/distinct": {post: true, body: maxBody, need: twotier.RoleCount, at: clientAPI,
			answer: s.addDistinct,
			get:    &route{need: twotier.RoleRead, at: clientAPI, answer: s.countDistinct}},
		"/v1/batch": {post: true, body: maxBatchBody, need: twotier.RoleCount | twotier.RoleRead,
			bare: true, at: clientAPI, handler: s.runBatchOnce},
		"/v1/reset": {post: true, body: maxBody, need: twotier.RoleAdmin, bare: true,
			at: clientAPI, answer: s.reset},
		"/v1/unban": {post: true, body: maxBody, need: twotier.RoleAdmin, bare: true,
			at: clientAPI, answer: s.unban},
		"/v1/admin/mode": {post: true, body: maxBody, need: twotier.RoleAdmin, guarded: true,
			all: true, bare: true, at: adminAPI, answer: s.setMode},
		"/v1/forward-auth": {any: true, need: twotier.RoleCount, at: clientAPI,
			handler: s.forwardAuth},
		"/v1/count":     {need: twotier.RoleRead, at: clientAPI, answer: s.count},
		"/v1/series":    {need: twotier.RoleRead, at: clientAPI, answer: s.showSeries},
		"/v1/top":       {need: twotier.RoleRead, all: true, at: clientAPI, answer: s.showTop},
		"/v1/bans":      {need: twotier.RoleRead, at: clientAPI, answer: s.listBans},
		"/v1/cluster":   {need: twotier.AnyRole, at: clientAPI, handler: s.showCluster},
		"/v1/events":    {need: twotier.RoleRead, bare: true, at: clientAPI, handler: s.showEvents},
		"/healthz":      {at: clientAPI | adminAPI | peerAPI, handler: s.showLive},
		"/readyz":       {at: clientAPI | adminAPI | peerAPI, handler: s.showReady},
		"/metrics":      {need: twotier.RoleRead, at: clientAPI | adminAPI, handler: s.showMetrics},
		"/openapi.json": {at: clientAPI, handler: sendOpenAPI},
	}
	s.addHolds(routes)
	addPage(routes, s.opts.Story)
	s.addExplain(routes)
	if s.opts.RuleBook != nil {
		// The page, which is at --listen, shows the rules. They are changed at --admin.
		routes["/v1/rules"] = route{need: twotier.RoleRead | twotier.RoleAdmin,
			all: true, at: clientAPI | adminAPI, handler: s.showRules,
			put: &route{post: true, yaml: true, body: twotier.MaxRuleText, need: twotier.RoleAdmin,
				guarded: true, instead: ruleFile, all: true, bare: true, at: adminAPI,
				handler: s.putRules}}
		if s.opts.Backtester != nil {
			routes["/v1/backtest"] = route{post: true, body: maxBatchBody, all: true, bare: true,
				need: twotier.RoleRead | twotier.RoleAdmin, at: adminAPI, handler: s.backtest}
		}
	}
	if s.opts.RateLimiter != nil {
		routes["/json"] = route{post: true, body: maxBatchBody, need: twotier.RoleCount,
			bare: true, at: clientAPI, handler: s.rateLimitJSON}
	}
	if s.opts.Peer != nil {
		routes[peerhttp.Path] = route{post: true, binary: true, body: peerhttp.MaxBody, at: peerAPI,
			handler: s.handlePeerMessage, admit: s.admitPeer}
	}
	if s.opts.Admin != "" {
		s.addProfiles(routes)
	}
	return routes
}

// grantKey is the user value that holds the grant of a request.
const grantKey = "grant"

// access checks tokens.
type access struct{ ask.Access }

// isPublic reports whether a route needs no token.
func (a *access) isPublic(r *route) bool { return r.need == 0 || !a.HasTokens() && !r.guarded }

// authorize returns the grant of a request on a route, or nil if everything is allowed.
func (a *access) authorize(h *fasthttp.RequestHeader, r *route) (*twotier.Grant, *wire.Problem) {
	if a.isPublic(r) {
		return nil, nil
	}
	if !a.HasTokens() && !a.HasAdmin() {
		return nil, &wire.Problem{Kind: wire.Forbidden,
			Detail: "this node was started without --admin-token or --tokens: there are no such " +
				"calls" + r.instead}
	}
	presented, ok := bearerToken(h)
	if !ok {
		return nil, &wire.Problem{Kind: wire.Unauthorized,
			Detail: "want the header Authorization: Bearer and " + a.acceptedTokens()}
	}
	g := a.Find(presented)
	switch {
	case g == nil:
		return nil, &wire.Problem{Kind: wire.Unauthorized,
			Detail: "the token is not known here; want " + a.acceptedTokens()}
	case !g.May(r.need):
		return nil, &wire.Problem{Kind: wire.Forbidden, Detail: "the token " + g.Name() +
			" has not the role " + r.need.String()}
	}
	return g, nil
}

// acceptedTokens names the accepted tokens in an error message.
func (a *access) acceptedTokens() string {
	if !a.HasTokens() {
		return "the node's --admin-token"
	}
	return "a token of the node's --tokens"
}

// bearerToken returns the token in a header.
func bearerToken(h *fasthttp.RequestHeader) ([]byte, bool) {
	const scheme = "Bearer "
	got := h.Peek("Authorization")
	if len(got) < len(scheme) || !bytes.EqualFold(got[:len(scheme)], []byte(scheme)) {
		return nil, false
	}
	return got[len(scheme):], true
}

// grantOf returns the grant of a request, or nil if everything is allowed.
func grantOf(ctx *fasthttp.RequestCtx) *twotier.Grant {
	g, _ := ctx.UserValue(grantKey).(*twotier.Grant)
	return g
}
