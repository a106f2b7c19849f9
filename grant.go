package twotier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is a set of permissions.
type Role uint8

// The roles, in the order in which String lists them.
const (
	// RoleCount allows counting and deciding: add and acquire.
	RoleCount Role = 1 << iota
	// RoleRead allows reading counts, metrics and the state of the cluster.
	RoleRead
	// RoleAdmin allows resetting keys, changing the mode and taking profiles.
	RoleAdmin
	// AnyRole is all of them.
	AnyRole = RoleCount | RoleRead | RoleAdmin
)

// roleNames are the names of the roles in the order of their bits.
var roleNames = [...]string{"count", "read", "admin"}

// String lists the roles, separated by commas.
func (r Role) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRoles reads roles separated by commas, at least one.
func ParseRoles(text string) (r Role, err error) {
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(roleNames[:], name)
		if i < 0 {
			return 0, fmt.Errorf("%q is not one of count, read and admin", name)
		}
		r |= 1 << i
	}
	return r, nil
}

// Grant is the set of rights of a token. It is immutable.
type Grant struct {
	name   string
	roles  Role
	spaces map[string]struct{} // nil: all
}

// FullGrant returns a grant of everything.
func FullGrant(name string) *Grant { return &Grant{name: name, roles: AnyRole} }

// NewGrant returns the grant of a token, given its name, its roles and its namespaces, both with
// commas between. No namespaces, or an asterisk, means all.
func NewGrant(name, roles, namespaces string) (*Grant, error) {
	r, err := ParseRoles(roles)
	if err != nil {
		return nil, err
	}
	g := &Grant{name: name, roles: r}
	if namespaces == "" || namespaces == "*" {
		return g, nil
	}
	g.spaces = map[string]struct{}{}
	for ns := range strings.SplitSeq(namespaces, ",") {
		if ns == "" || ns == "*" {
			return nil, errors.New("namespaces are either * or names with commas between")
		}
		g.spaces[ns] = struct{}{}
	}
	return g, nil
}

// Name returns the name of the token.
func (g *Grant) Name() string { return g.name }

// May reports whether any of the roles is granted.
func (g *Grant) May(roles Role) bool { return g.roles&roles != 0 }

// HasNamespace reports whether a namespace is granted; an empty one means the default.
func (g *Grant) HasNamespace(ns []byte) bool {
	if g.spaces == nil {
		return true
	}
	if len(ns) == 0 {
		_, ok := g.spaces[DefaultNamespace]
		return ok
	}
	if _, ok := g.spaces[string(ns)]; ok {
		return true
	}
	if IsImported(ns) {
		of, _ := Accompanied(ns, nil)
		return g.HasNamespace(of)
	}
	return false
}

// Covers reports whether g has the same name as other and grants everything that other does: it is
// the same token or its replacement.
func (g *Grant) Covers(other *Grant) bool {
	if g.name != other.name || other.roles&^g.roles != 0 || g.spaces != nil && other.spaces == nil {
		return false
	}
	for ns := range other.spaces {
		if !g.HasNamespace([]byte(ns)) {
			return false
		}
	}
	return true
}

// AllNamespaces reports whether all namespaces are granted.
func (g *Grant) AllNamespaces() bool { return g.spaces == nil }

// Refusal returns why g does not allow a call that needs one of the roles in a namespace (an empty
// one means the default), and whether its kind ("op") or its namespace ("ns") is to blame. Both are
// empty if g allows it, and if g is nil, which stands for a node without tokens.
func (g *Grant) Refusal(need Role, ns []byte) (field, why string) {
	switch {
	case g == nil:
		return "", ""
	case !g.May(need):
		return "op", "the token " + g.Name() + " has not the role " + need.String()
	case !g.HasNamespace(ns):
		return "ns", "the token " + g.Name() + " is not for this namespace"
	}
	return "", ""
}
