package token

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is a set of things that may be done.
type Role uint8

// The roles, in the order in which they are listed.
const (
	// Count is to count and to decide: add and acquire.
	Count Role = 1 << iota
	// Read is to see what was counted and how the node is.
	Read
	// Admin is to reset keys, to change the mode and to take profiles.
	Admin
	// Any is each of them.
	Any = Count | Read | Admin
)

// roleNames are the names of the roles in the order of their bits.
var roleNames = [...]string{"count", "read", "admin"}

// String lists the roles, with commas between.
func (r Role) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRoles reads roles with commas between, at least one.
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

// Grant is what the owner of a token may do. It never changes.
type Grant struct {
	name   string
	roles  Role
	spaces map[string]struct{} // nil: all
}

// defaultNamespace is the namespace of what names none.
const defaultNamespace = "default"

// Full is the grant of everything.
func Full(name string) *Grant { return &Grant{name: name, roles: Any} }

// newGrant returns the grant that three fields of a file say. No namespaces, or a star, are all.
func newGrant(name, roles, namespaces string) (*Grant, error) {
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

// Name is what the token is called.
func (g *Grant) Name() string { return g.name }

// May reports whether any of the roles is granted.
func (g *Grant) May(roles Role) bool { return g.roles&roles != 0 }

// In reports whether a namespace is granted; an empty one stands for the default.
func (g *Grant) In(ns []byte) bool {
	if g.spaces == nil {
		return true
	}
	if len(ns) == 0 {
		_, ok := g.spaces[defaultNamespace]
		return ok
	}
	_, ok := g.spaces[string(ns)]
	return ok
}

// Covers reports whether the token has the name of another and grants all that the other does: it
// is the same one, or has taken its place.
func (g *Grant) Covers(other *Grant) bool {
	if g.name != other.name || other.roles&^g.roles != 0 || g.spaces != nil && other.spaces == nil {
		return false
	}
	for ns := range other.spaces {
		if !g.In([]byte(ns)) {
			return false
		}
	}
	return true
}

// Everywhere reports whether all namespaces are granted.
func (g *Grant) Everywhere() bool { return g.spaces == nil }
