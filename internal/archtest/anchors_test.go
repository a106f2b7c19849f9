package archtest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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

// TestAnchorsOfHeadings compares anchors with those of GitHub.
func TestAnchorsOfHeadings(t *testing.T) {
	got := headings("# A b\n```sh\n# no heading\n```\n### `POST /v1/batch`, what?\n#hash\n")
	for heading, want := range map[string]bool{
		"a-b": true, "no-heading": false, "post-v1batch-what": true, "hash": false,
	} {
		if got[heading] != want {
			t.Errorf("%s: %v, want %v", heading, got[heading], want)
		}
	}
}
