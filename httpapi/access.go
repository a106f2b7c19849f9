package httpapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/token"
	"twotier.dev/twotier/syncer"
)

// Tokens knows who may do what; a [token.Store] is the real one.
type Tokens interface {
	// Find returns what a token grants, nil if it is not known. It must not tell by its time how
	// much of a token is right.
	Find(presented []byte) *token.Grant
}

// grantKey is the name of the user value that holds the grant of a request.
const grantKey = "grant"

// access decides who may do what.
type access struct {
	tokens Tokens
	admin  *token.Grant      // of the token for administration; nil without one
	secret [sha256.Size]byte // the hash of that
}

func newAccess(o *Options) access {
	a := access{tokens: o.Tokens}
	if o.AdminToken != "" {
		a.admin, a.secret = token.Full("--admin-token"), sha256.Sum256([]byte(o.AdminToken))
	}
	return a
}

// open reports whether a route may be used by anyone.
func (a *access) open(r *route) bool { return r.need == 0 || a.tokens == nil && !r.guarded }

// find returns what a token grants, nil if it is not known.
func (a *access) find(presented []byte) *token.Grant {
	if a.admin != nil {
		sum := sha256.Sum256(presented)
		if subtle.ConstantTimeCompare(sum[:], a.secret[:]) == 1 {
			return a.admin
		}
	}
	if a.tokens == nil {
		return nil
	}
	return a.tokens.Find(presented)
}

// enter returns what the sender of a header may do under a route: nil if that is not restricted.
func (a *access) enter(h *fasthttp.RequestHeader, r *route) (*token.Grant, *problem) {
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

// wanted says which tokens there are.
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

// grantOf returns what the sender of a request may do, nil if that is not restricted.
func grantOf(ctx *fasthttp.RequestCtx) *token.Grant {
	g, _ := ctx.UserValue(grantKey).(*token.Grant)
	return g
}

// roleOf is the role that an operation takes.
func roleOf(kind syncer.Kind) token.Role {
	if kind == syncer.Count {
		return token.Read
	}
	return token.Count
}

// forbidden returns why an operation in a namespace is not granted, nil if it is.
func forbidden(g *token.Grant, need token.Role, ns []byte) *problem {
	switch {
	case g == nil:
		return nil
	case !g.May(need):
		return &problem{kind: kindForbidden, field: "op", detail: "the token " + g.Name() +
			" has not the role " + need.String()}
	case !g.In(ns):
		return &problem{kind: kindForbidden, field: "ns", detail: "the token " + g.Name() +
			" is not for this namespace"}
	}
	return nil
}

// everywhere returns why what shows all namespaces is not granted, nil if it is.
func everywhere(g *token.Grant) *problem {
	if g == nil || g.Everywhere() {
		return nil
	}
	return &problem{kind: kindForbidden, detail: "this concerns all namespaces, and the token " +
		g.Name() + " is for some"}
}
