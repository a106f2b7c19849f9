package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is the target of a Markdown link or picture, without what stands behind a #.
	link = regexp.MustCompile(`\]\(([^)#\s]+)`)
	// place is a file or folder of the tree that is named in a code span.
	place = regexp.MustCompile(
		"`((?:internal|cmd|docs|scripts|bench|httpapi|syncer|redisstore)/[a-z/._]+)`")
)

// TestDocumentsNameWhatIsThere follows the links of all documents within the tree, and looks for
// the files and folders that they name.
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
