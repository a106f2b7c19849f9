package httpapi

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
)

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
