package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
