package ask

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/token"
)

// Service executes operations. A method must not keep an operation, its keys or its context after
// it returns. Package request classifies the errors.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	// DoAll executes operations and sets Err in each result. Operations on the same key are
	// executed in order.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// Keys answers queries about keys.
type Keys interface {
	// Series returns the buckets of a key, oldest first, over a window in milliseconds that ends
	// now, and their width.
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []twotier.Point, err error)
	// Top returns up to limit of the keys with the largest counts, largest first, of those that
	// begin with a prefix. by is what to count, see request.ValidTopOrder: in a window in
	// milliseconds that ends now, or, if by is "concurrent", the leases that are open now, of all
	// keys.
	Top(ctx context.Context, by, prefix string, limit int,
		window int64) ([]twotier.KeyCount, error)
	// OpenLeases returns how many leases of a key are open.
	OpenLeases(ctx context.Context, ns, key []byte) (twotier.OpenLeases, error)
}

// Resetter resets keys.
type Resetter interface {
	// Reset forgets a key.
	Reset(ctx context.Context, ns, key []byte) error
}

// Rules resolves the names of rules.
type Rules interface {
	// Rules returns the rules in force, or nil while they are unknown. All names in one request are
	// resolved in one set.
	Rules() *twotier.RuleSet
}

// Tokens resolves tokens; [token.Store] implements it.
type Tokens interface {
	// Find returns the grant of a token, or nil if the token is unknown. Its duration must not
	// reveal how much of a token is right.
	Find(presented []byte) *twotier.Grant
}

// Access resolves the tokens that an endpoint accepts.
type Access struct {
	tokens Tokens
	admin  *token.Set // nil without an admin token
}

// NewAccess returns the access of a node with these tokens, which may be nil, and this admin token,
// which may be empty.
func NewAccess(tokens Tokens, admin string) Access {
	return Access{tokens: tokens, admin: token.Master("--admin-token", admin)}
}

// HasTokens reports whether requests need tokens.
func (a *Access) HasTokens() bool { return a.tokens != nil }

// HasAdmin reports whether there is an admin token.
func (a *Access) HasAdmin() bool { return a.admin != nil }

// Find returns the grant of a token, or nil if the token is unknown.
func (a *Access) Find(presented []byte) *twotier.Grant {
	if g := a.admin.Find(presented); g != nil || a.tokens == nil {
		return g
	}
	return a.tokens.Find(presented)
}

// CheckGrant returns why a grant does not allow a call that needs a role in a namespace. A nil
// grant allows everything.
func CheckGrant(g *twotier.Grant, need twotier.Role, ns []byte) *request.Failure {
	if field, why := g.Refusal(need, ns); why != "" {
		return &request.Failure{Kind: request.Forbidden, Field: field, Detail: why}
	}
	return nil
}

// CheckGrantAll returns why a grant does not cover all namespaces.
func CheckGrantAll(g *twotier.Grant) *request.Failure {
	if g == nil || g.AllNamespaces() {
		return nil
	}
	return &request.Failure{Kind: request.Forbidden, Detail: "this concerns all namespaces, and " +
		"the token " + g.Name() + " is for some"}
}

// roleOf returns the role that an operation requires.
func roleOf(kind twotier.Kind) twotier.Role {
	if kind == twotier.Count {
		return twotier.RoleRead
	}
	return twotier.RoleCount
}
