package archtest

import (
	"cmp"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// checkoutFile matches a file of this repository in a command.
	checkoutFile = regexp.MustCompile(`(^|[^\w./])(deploy|clients|scripts|bench|cmd)/|\./cmd/`)
	// waits matches a command that waits for something else, and waitsFor the announcement of it.
	waits    = regexp.MustCompile(`\$\(seq \d+\)|--retry-delay|\bsleep \d{2,}`)
	waitsFor = regexp.MustCompile(`echo ['"]waiting for [^'"]+['"] >&2; `)
	// seeLog matches the log that an announcement names.
	seeLog = regexp.MustCompile(`'waiting for [^']*: see ([\w.]+)' `)
)

// TestPagesNameTheirCheckout checks the commands of all pages. A page with commands that read files
// of the repository names the checkout in its first paragraph, and each command that waits first
// announces what it waits for, with the log of what does not come.
func TestPagesNameTheirCheckout(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(len(pages), err)
	}
	waiting, inCheckout := 0, 0
	for _, path := range pages {
		page := filepath.Join("docs", filepath.Base(path))
		text := read(t, page)
		first := strings.Split(text, "\n\n")[1]
		needs := false
		for _, line := range commands(text) {
			needs = needs || checkoutFile.MatchString(line)
			if !waits.MatchString(line) {
				continue
			}
			waiting++
			if !waitsFor.MatchString(line) {
				t.Errorf("%s: does not announce what it waits for: %s", page, line)
			}
			if log := seeLog.FindStringSubmatch(line); log != nil &&
				!strings.Contains(text, ">"+log[1]) {
				t.Errorf("%s: nothing writes %s", page, log[1])
			}
		}
		if needs {
			inCheckout++
			if !strings.Contains(first, "checkout") {
				t.Errorf("%s: its commands need a checkout, but it begins with %q", page, first)
			}
		}
	}
	if waiting < 20 || inCheckout < 5 {
		t.Errorf("found %d commands that wait, and %d pages that need a checkout", waiting,
			inCheckout)
	}
}

// commands returns the lines of the blocks of a page that are pasted into a shell.
func commands(text string) (list []string) {
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if mark, ok := strings.CutPrefix(line, "```"); ok {
			kind = mark
			continue
		}
		prompt, ok := strings.CutPrefix(line, "$ ")
		switch {
		case kind == "sh":
			list = append(list, line)
		case kind == "console" && ok:
			list = append(list, prompt)
		}
	}
	return list
}

var (
	// anchor matches the target of a Markdown link into a page: the page, if any, and the heading.
	anchor = regexp.MustCompile(`\]\(([\w./-]*)#([\w-]+)\)`)
	// pageAnchor matches the same in other files, by the path below the root.
	pageAnchor = regexp.MustCompile(`\b(docs/[\w-]+\.md|SECURITY\.md|README\.md)#([\w-]+)`)
	// notInSlug matches the characters of a heading that its anchor leaves out.
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestAnchorsExist checks that the headings exist to which documents link, and which the code, the
// alerts and the page name.
func TestAnchorsExist(t *testing.T) {
	compared := 0
	check := func(file, page, heading string) {
		if strings.HasSuffix(page, ".md") {
			compared++
			if exists(page) && !headings(read(t, page))[heading] {
				t.Errorf("%s names %s#%s, and that page has no such heading", file, page, heading)
			}
		}
	}
	for _, doc := range documents(t) {
		for _, m := range anchor.FindAllStringSubmatch(read(t, doc), -1) {
			page := doc
			if m[1] != "" {
				page = filepath.Join(filepath.Dir(doc), m[1])
			}
			check(doc, page, m[2])
		}
	}
	for _, suffix := range []string{".go", ".yaml", ".html", ".js", "CHANGELOG.md"} {
		walk(t, suffix, func(file string) {
			for _, m := range pageAnchor.FindAllStringSubmatch(read(t, file), -1) {
				check(file, m[1], m[2])
			}
		})
	}
	if compared < 100 {
		t.Errorf("only %d anchors were compared: the rule looks in the wrong place", compared)
	}
}

// headings returns the anchors of a page's headings.
func headings(text string) map[string]bool {
	found, code := make(map[string]bool), false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if marks, title, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !code &&
			marks != "" && strings.Trim(marks, "#") == "" {
			slug := notInSlug.ReplaceAllString(strings.ToLower(title), "")
			found[strings.ReplaceAll(slug, " ", "-")] = true
		}
	}
	return found
}

var (
	// link matches the target of a Markdown link or picture, without the fragment.
	link = regexp.MustCompile(`\]\(([^)#\s]+)`)
	// place matches a file or folder of the tree in a code span.
	place = regexp.MustCompile(
		"`((?:internal|cmd|docs|scripts|bench|httpapi|syncer|redisstore)/[a-z/._]+)`")
)

// TestDocumentsNameWhatIsThere checks that all links of documents within the tree, and all files
// and folders that they name, exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			outside := strings.Contains(m[1], "://") || strings.Contains(m[1], "{{")
			if !outside && !exists(filepath.Join(filepath.Dir(doc), m[1])) {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
		for _, m := range place.FindAllStringSubmatch(text, -1) {
			if !exists(m[1]) && !exists(filepath.Join(filepath.Dir(doc), m[1])) {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(filepath.Join(root, file))
	return err == nil
}

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
