package httpapi

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/token"
)

// Tokens resolves bearer tokens; [token.Store] implements it.
type Tokens interface {
	// Find returns the grant of a token, or nil if the token is unknown. Its duration must not
	// reveal how much of a token is right.
	Find(presented []byte) *twotier.Grant
}

// grantKey is the user value that holds the grant of a request.
const grantKey = "grant"

// access checks tokens.
type access struct {
	tokens Tokens
	admin  *token.Master // Options.AdminToken; nil without one
}

func newAccess(o *Options) access {
	return access{tokens: o.Tokens, admin: token.NewMaster("--admin-token", o.AdminToken)}
}

// open reports whether a route needs no token.
func (a *access) open(r *route) bool { return r.need == 0 || a.tokens == nil && !r.guarded }

// find returns the grant of a token, or nil if the token is unknown.
func (a *access) find(presented []byte) *twotier.Grant {
	if g := a.admin.Find(presented); g != nil {
		return g
	}
	if a.tokens == nil {
		return nil
	}
	return a.tokens.Find(presented)
}

// enter returns the grant of a request on a route, or nil if everything is allowed.
func (a *access) enter(h *fasthttp.RequestHeader, r *route) (*twotier.Grant, *problem) {
	if a.open(r) {
		return nil, nil
	}
	if a.tokens == nil && a.admin == nil {
		return nil, &problem{kind: kindForbidden,
			detail: "this node was started without --admin-token or --tokens: there are no such " +
				"calls"}
	}
	presented, ok := bearer(h)
	if !ok {
		return nil, &problem{kind: kindUnauthorized,
			detail: "want the header Authorization: Bearer and " + a.wanted()}
	}
	g := a.find(presented)
	switch {
	case g == nil:
		return nil, &problem{kind: kindUnauthorized, detail: "the token is not known here; want " +
			a.wanted()}
	case !g.May(r.need):
		return nil, &problem{kind: kindForbidden, detail: "the token " + g.Name() +
			" has not the role " + r.need.String()}
	}
	return g, nil
}

// wanted names the accepted tokens in an error message.
func (a *access) wanted() string {
	if a.tokens == nil {
		return "the node's --admin-token"
	}
	return "a token of the node's --tokens"
}

// bearer returns the token in a header.
func bearer(h *fasthttp.RequestHeader) ([]byte, bool) {
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

// roleOf returns the role that an operation requires.
func roleOf(kind twotier.Kind) twotier.Role {
	if kind == twotier.Count {
		return twotier.RoleRead
	}
	return twotier.RoleCount
}

// forbidden returns why a grant does not allow an operation in a namespace, or nil if it does.
func forbidden(g *twotier.Grant, need twotier.Role, ns []byte) *problem {
	if g == nil {
		return nil
	}
	if field, why := g.Refusal(need, ns); why != "" {
		return &problem{kind: kindForbidden, field: field, detail: why}
	}
	return nil
}

// needsAllNamespaces returns why a grant does not cover all namespaces, or nil if it does.
func needsAllNamespaces(g *twotier.Grant) *problem {
	if g == nil || g.AllNamespaces() {
		return nil
	}
	return &problem{kind: kindForbidden, detail: "this concerns all namespaces, and the token " +
		g.Name() + " is for some"}
}
