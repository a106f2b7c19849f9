package archtest

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// exceptions returns the package-level variables of a form that could change, each with the reason
// why that is harmless. Assignments to them are still refused.
func exceptions() map[string]string {
	return map[string]string{
		"..interned":           "equal calendar periods are the same constant in all nodes",
		"httpapi/client.gates": "it only warns: gates of several clients share counts",
		"internal/zones.own":   "an embedded file, opened once",
		"internal/zones.inUse": "the nodes of a process have the same time zones, chosen once",
	}
}

// TestNothingAtPackageLevelChanges checks invariant I12: a hundred nodes run in one process. A
// package-level variable may only be an error, a compiled pattern, an embedded file, a time, a
// string or number, an array, a struct of this package, or a check that a type implements an
// interface, and nothing may be assigned to it. Slices, maps and pointers are refused, because this
// test can't see changes through them.
func TestNothingAtPackageLevelChanges(t *testing.T) {
	excepted := exceptions()
	seen := make(map[string]bool)
	for _, p := range packages(t) {
		vars := packageVars(p)
		for name, v := range vars {
			id := p.path + "." + name
			if _, ok := excepted[id]; ok {
				seen[id] = true
				continue
			}
			if !v.constant(p) {
				t.Errorf("%s: package-level variable %s could be changed; make it a field, a "+
					"function, an array or a constant, "+
					"or give a reason in exceptions", p.at(v.name.Pos()), name)
			}
		}
		for _, f := range p.files {
			for _, pos := range assignments(f, vars) {
				t.Errorf("%s: a package-level variable is changed", p.at(pos))
			}
		}
	}
	for id := range excepted {
		if !seen[id] {
			t.Errorf("the exception for %s is not needed", id)
		}
	}
}

// variable is one variable at package level.
type variable struct {
	name  *ast.Ident
	spec  *ast.ValueSpec
	value ast.Expr // nil if it has none
	embed bool
}

// packageVars returns the package-level variables by name, except for blank ones.
func packageVars(p pkg) map[string]variable {
	vars := make(map[string]variable)
	for _, f := range p.files {
		for _, decl := range f.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, s := range gen.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					v := variable{name: name, spec: spec, embed: isEmbed(gen.Doc) ||
						isEmbed(spec.Doc)}
					if i < len(spec.Values) {
						v.value = spec.Values[i]
					}
					if name.Name != "_" {
						vars[name.Name] = v
					}
				}
			}
		}
	}
	return vars
}

func isEmbed(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

// constant reports whether the variable has one of the forms that only an assignment can change.
func (v variable) constant(p pkg) bool {
	switch value := v.value.(type) {
	case nil:
		return v.embed
	case *ast.CallExpr:
		// A function literal that is called at once counts as its result.
		if fn, ok := value.Fun.(*ast.FuncLit); ok {
			results := fn.Type.Results
			return results.NumFields() == 1 && isValueType(results.List[0].Type, p)
		}
		switch callee(value) {
		case "errors.New", "errors.Join", "fmt.Errorf", "regexp.MustCompile", "time.Date",
			"time.Unix", "time.UnixMilli":
			return true
		}
		return false
	case *ast.CompositeLit:
		return isValueType(value.Type, p)
	case *ast.BasicLit, *ast.BinaryExpr:
		return true
	case *ast.SelectorExpr:
		// An error of another package under another name.
		return strings.HasPrefix(value.Sel.Name, "Err")
	case *ast.Ident:
		return value.Name == "true" || value.Name == "false"
	}
	return false
}

// isValueType reports whether a type is an array or a struct that the package declares.
func isValueType(t ast.Expr, p pkg) bool {
	switch t := t.(type) {
	case *ast.ArrayType:
		return t.Len != nil
	case *ast.StructType:
		return true
	case *ast.Ident:
		for _, f := range p.files {
			if obj := f.Scope.Lookup(t.Name); obj != nil {
				spec, ok := obj.Decl.(*ast.TypeSpec)
				return ok && isValueType(spec.Type, p)
			}
		}
	}
	return false
}

func callee(call *ast.CallExpr) string {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

// assignments returns the positions at which a file assigns to one of the variables or to a part of
// one, or takes its address.
func assignments(f *ast.File, vars map[string]variable) []token.Pos {
	var found []token.Pos
	note := func(e ast.Expr) {
		if id := base(e); id != nil && isPackageLevel(id, vars) {
			found = append(found, e.Pos())
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				note(e)
			}
		case *ast.IncDecStmt:
			note(n.X)
		case *ast.RangeStmt:
			note(n.Key)
			note(n.Value)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X)
			}
		}
		return true
	})
	return found
}

// base returns the variable that an expression is part of, such as x for x.y[1], or nil.
func base(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// isPackageLevel reports whether the identifier means one of the variables rather than a local
// variable of the same name. The parser resolves names within a file: a name that it can't resolve
// is declared in another file of the package.
func isPackageLevel(id *ast.Ident, vars map[string]variable) bool {
	v, ok := vars[id.Name]
	if !ok {
		return false
	}
	return id.Obj == nil || id.Obj.Decl == v.spec
}
