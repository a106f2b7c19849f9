package archtest

import (
	"cmp"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// docLink matches a link in a comment to an exported name: a package's name if there is one, and
// the name with its member. Usage lines have placeholders in capitals.
var docLink = regexp.MustCompile(`\[\*?(?:([a-z]\w*)\.)?([A-Z]+\w*[a-z]\w*(?:\.([A-Z]\w*))?)\]`)

// names are the declared names of a package. "Type.*" stands for what a type embeds.
type names map[string]bool

// TestDocLinksResolve checks that the links in comments lead to a declaration. Renaming a name by
// its uses leaves such links behind.
func TestDocLinksResolve(t *testing.T) {
	all := packages(t)
	declared := make(map[string]names) // by the package's name
	members := make(names)             // of any type
	for _, p := range all {
		if declared[p.name()] == nil {
			declared[p.name()] = make(names)
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				declared[p.name()].add(n, members)
				return true
			})
		}
	}
	for _, p := range all {
		for _, f := range p.files {
			for _, group := range f.Comments {
				for _, m := range docLink.FindAllStringSubmatch(group.Text(), -1) {
					in, ok := declared[cmp.Or(m[1], p.name())]
					if ok && !in[m[2]] && !in.promotes(m[2], m[3], members) {
						t.Errorf("%s: %s is not declared", p.at(group.Pos()), m[0])
					}
				}
			}
		}
	}
}

// promotes reports whether a type embeds others, and one of the module's types has the member.
func (s names) promotes(name, member string, members names) bool {
	return member != "" && s[strings.TrimSuffix(name, member)+"*"] && members[member]
}

// add adds the names that a node declares: functions, methods, types with their fields and methods,
// variables and constants.
func (s names) add(n ast.Node, members names) {
	addMember := func(typ, name string) { s[typ+"."+name], members[name] = true, true }
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv != nil {
			addMember(receiver(n.Recv.List[0].Type), n.Name.Name)
		} else {
			s[n.Name.Name] = true
		}
	case *ast.ValueSpec:
		for _, id := range n.Names {
			s[id.Name] = true
		}
	case *ast.TypeSpec:
		s[n.Name.Name] = true
		var list *ast.FieldList
		switch typ := n.Type.(type) {
		case *ast.StructType:
			list = typ.Fields
		case *ast.InterfaceType:
			list = typ.Methods
		default:
			return
		}
		for _, m := range list.List {
			for _, id := range m.Names {
				addMember(n.Name.Name, id.Name)
			}
			if len(m.Names) == 0 {
				s[n.Name.Name+".*"] = true
			}
		}
	}
}

// receiver returns the name of a method's receiver type.
func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}
