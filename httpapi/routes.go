package httpapi

import (
	"bytes"
	"fmt"
	"runtime/debug"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/internal/peerhttp"
)

// route describes what is served at one path.
type route struct {
	post    bool       // POST, otherwise GET and HEAD
	binary  bool       // the body is not JSON
	need    token.Role // one of these roles if there are tokens; 0: anyone
	guarded bool       // needs a token even if there are no Tokens
	at      apiSet     // where it is served
	body    int        // maximum size of a body
	// admit checks the sender of a request before its body is read; nil admits everyone.
	admit   func(ctx *fasthttp.RequestCtx) *problem
	handler func(ctx *fasthttp.RequestCtx) *problem
}

// routeTable returns all paths. There are no patterns: keys are in bodies and queries.
func (s *Server) routeTable() map[string]route {
	routes := map[string]route{
		"/v1/add": {post: true, body: maxBody, need: token.Count, at: clientAPI,
			handler: s.add},
		"/v1/acquire": {post: true, body: maxBody, need: token.Count, at: clientAPI,
			handler: s.acquire},
		"/v1/batch": {post: true, body: maxBatchBody, need: token.Count | token.Read,
			at: clientAPI, handler: s.batch},
		"/v1/reset": {post: true, body: maxBody, need: token.Admin, at: clientAPI,
			handler: s.reset},
		"/v1/admin/mode": {post: true, body: maxBody, need: token.Admin, guarded: true,
			at: adminAPI, handler: s.adminMode},
		"/v1/count":            {need: token.Read, at: clientAPI, handler: s.count},
		"/v1/series":           {need: token.Read, at: clientAPI, handler: s.series},
		"/v1/top":              {need: token.Read, at: clientAPI, handler: s.top},
		"/v1/cluster":          {need: token.Any, at: clientAPI, handler: s.cluster},
		"/healthz":             {at: clientAPI | adminAPI | peerAPI, handler: s.live},
		"/readyz":              {at: clientAPI | adminAPI | peerAPI, handler: s.ready},
		"/metrics":             {need: token.Read, at: clientAPI | adminAPI, handler: s.metrics},
		"/openapi.json":        {at: clientAPI, handler: openAPI},
		"/":                    {at: clientAPI, handler: page},
		"/assets/dashboard.js": {at: clientAPI, handler: script},
		"/assets/style.css":    {at: clientAPI, handler: style},
	}
	if s.opts.Peer != nil {
		routes[peerhttp.Path] = route{post: true, binary: true, body: peerhttp.MaxBody, at: peerAPI,
			handler: s.peer, admit: s.admitPeer}
	}
	if s.opts.Admin != "" {
		s.addProfiles(routes)
	}
	return routes
}

// handle answers one request.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer s.recovered(ctx)
	p := s.dispatch(ctx)
	// Memory for large requests was reserved before they were executed, but not for answers to
	// queries.
	if p == nil && s.endpointOf(ctx) == s.endpoints[0] {
		p = memoryOf(ctx).takeUpTo(int64(len(ctx.Response.Body())))
	}
	if p != nil {
		p.send(ctx)
	}
	if unread(ctx) {
		lingers(ctx, p)
	}
	if s.closing.Load() || unread(ctx) {
		ctx.SetConnectionClose()
	}
	s.counted(ctx)
}

// counted counts the response by its status code.
func (s *Server) counted(ctx *fasthttp.RequestCtx) {
	if code := ctx.Response.StatusCode(); code < len(s.codes) {
		s.codes[code].Add(1)
	}
}

// recovered turns a panic into a 500; fasthttp would let it end the process.
func (s *Server) recovered(ctx *fasthttp.RequestCtx) {
	v := recover()
	if v == nil {
		return
	}
	s.log.Error("panic in a handler", "path", string(ctx.Path()), "panic", fmt.Sprint(v), "stack",
		string(debug.Stack()))
	// Response.Reset would switch the Date header back on, and with it fasthttp's clock goroutine.
	// send replaces the body.
	p := &problem{kind: kindInternal, detail: "an error of this server's own; its log says more"}
	p.send(ctx)
	ctx.SetConnectionClose()
	s.counted(ctx)
}

// dispatch finds the handler of a request and calls it.
func (s *Server) dispatch(ctx *fasthttp.RequestCtx) *problem {
	h := &ctx.Request.Header
	if p := framed(h); p != nil {
		ctx.SetConnectionClose()
		return p
	}
	d := s.endpointOf(ctx)
	r, ok := d.routes[string(exactPath(h.RequestURI()))]
	// Nodes authenticate with their secret, and call each other by names of their own.
	if r.at != peerAPI && !d.hosts.allow(ctx.Host()) {
		return &problem{kind: kindForbidden, field: "Host",
			detail: "not a name of this server; it answers to its address, and to what --hosts " +
				"lists"}
	}
	if !ok {
		return &problem{kind: kindNotFound,
			detail: "nothing is served under this path; /openapi.json lists what is"}
	}
	if r.post {
		if !ctx.IsPost() {
			return &problem{kind: kindMethod, detail: "want POST", allow: "POST"}
		}
		if p := checkMedia(h); p != nil && !r.binary {
			return p
		}
	} else if !ctx.IsGet() && !ctx.IsHead() {
		return &problem{kind: kindMethod, detail: "want GET", allow: "GET, HEAD"}
	}
	g, p := s.access.enter(h, &r)
	if p != nil {
		return p
	}
	if g != nil {
		ctx.SetUserValue(grantKey, g)
	}
	if r.admit != nil {
		if p := r.admit(ctx); p != nil {
			return p
		}
	}
	if r.post {
		if p := readBody(ctx, r.body); p != nil {
			return p
		}
	}
	return r.handler(ctx)
}

// checkMedia refuses bodies that are not JSON. This is a security measure: it keeps pages of other
// sites from writing to this server. A browser sends a preflight request before it sends
// application/json to another site, and it sends Origin with every POST to another site.
func checkMedia(h *fasthttp.RequestHeader) *problem {
	const want = "want Content-Type: application/json"
	if len(h.Peek("Content-Encoding")) > 0 {
		return &problem{kind: kindMediaType, detail: "want a body without Content-Encoding"}
	}
	media := h.ContentType()
	switch {
	case string(media) == "application/json":
		return nil
	case len(media) == 0:
		if len(h.Peek("Origin")) > 0 {
			return &problem{kind: kindMediaType, detail: want}
		}
		return nil
	}
	media, _, _ = bytes.Cut(media, []byte{';'})
	if bytes.EqualFold(bytes.TrimSpace(media), []byte("application/json")) {
		return nil
	}
	return &problem{kind: kindMediaType, detail: want + ", got " + clip(media)}
}

// unreadable answers what fasthttp could not parse as a request.
func (s *Server) unreadable(ctx *fasthttp.RequestCtx, err error) {
	p := problemOfReading(err)
	lingers(ctx, p)
	p.send(ctx)
	s.counted(ctx)
}

// lingers makes closing the connection wait for what the client is still sending and nobody reads,
// unless the client was too slow.
func lingers(ctx *fasthttp.RequestCtx, p *problem) {
	if c, ok := ctx.Conn().(*conn); ok {
		c.mu.Lock()
		c.linger = p == nil || p.kind != kindTimeout
		c.mu.Unlock()
	}
}
